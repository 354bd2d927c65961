"""What pytest must not collect: the kernels, where Triton is not installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["src/granet/kernels/*.py", "src/granet/*_triton.py"]
