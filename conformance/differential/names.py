"""The names in rules.py must exist: a rule about something else can never explain anything."""

import ast
import re
from pathlib import Path

import service

HERE = Path(__file__).resolve().parent
SERVER = HERE.parent.parent / "crates" / "queue-api" / "src"


def strings_in(node):
    return [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def compared_with(tree, attribute):
    """The texts that a variable with this name is compared with."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(isinstance(side, ast.Attribute) and side.attr == attribute for side in sides):
                found += strings_in(node)
    return found


def names_of_nothing():
    """Names that do not exist: kinds of requests that no program has, marks that none gets, headers that are not
    compared, and codes and elements that do not occur in the server."""
    tree = ast.parse((HERE / "rules.py").read_text())
    programs = (HERE / "programs.py").read_text()
    source = "".join(path.read_text() for path in sorted(SERVER.rglob("*.rs")))
    kinds = re.findall(r'Request\(\s*"([^"]+)"', programs)
    marks = re.findall(r'odd\.append\("([^"]+)"\)', programs)
    stale = set(compared_with(tree, "kind")) - set(kinds)
    stale |= set(compared_with(tree, "odd")) - set(marks)
    for text in strings_in(tree):
        if text.startswith("x-ms-"):
            known = text in service.NAMED_HEADERS or text == "x-ms-meta"
        else:
            known = not re.fullmatch(r"[A-Z][a-z]+([A-Z][a-z]+)+", text) or text in source
        if not known:
            stale.add(text)
    return sorted(stale)
