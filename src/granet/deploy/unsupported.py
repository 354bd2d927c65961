"""What an engine says of a plan that it cannot run."""


class Unsupported(Exception):
    """Why an engine cannot run a plan: it is not installed, or lacks an operator."""
