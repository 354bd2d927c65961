"""What ``package.module:name`` names: a model, a method or an observer of one's own."""

from __future__ import annotations

import importlib
import traceback
from typing import Any

from granet.error_line import error_line, first_line


def imported(field: str, path: str) -> Any:
    """The object that `path` names; ValueError that names the field it was given as if there is none.

    >>> imported("model", "torch.nn:Linear").__name__
    'Linear'
    """
    module_name, _, attribute = path.partition(":")
    if module_name.startswith("."):
        raise ValueError(f"{field}={path!r}: must be the whole name of a module, without a dot before it")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # somebody's own code may raise anything
        raise ValueError(
            f"{field}={path!r}: must be importable, module {module_name!r} is not ({_told(error)})"
        ) from error
    target: Any = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            where = getattr(module, "__file__", None) or "built in"  # it may be another module than the one meant
            raise ValueError(f"{field}={path!r}: must be in its module, {module_name!r} has no {attribute!r} ({where})")
        target = getattr(target, part)
    return target


def _told(error: BaseException) -> str:
    """In one line: what was raised, and which line of a module was at work then, if any was."""
    told = first_line(error) if isinstance(error, ImportError) else error_line(error)
    at_work = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "<module>"]
    if not at_work or isinstance(error, SyntaxError):  # which names the line by itself
        return told
    return f"{told}; {at_work[-1].filename}, line {at_work[-1].lineno}"
