"""`python -m granet` is the `granet` command."""

from granet.cli import main

if __name__ == "__main__":
    main()
