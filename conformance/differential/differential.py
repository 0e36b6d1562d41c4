"""Runs random programs against kew and Azurite at once; every difference must have a name.

A difference with a name is in rules.py and in docs/differences.md. One without ends the run, with
the seed, the requests before it and both answers. After an accepted difference that may have left
the services in different states, both are emptied.
"""

import argparse
import collections
import os
import random
import re
import secrets
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benches"))

import compare  # noqa: E402
from names import names_of_nothing  # noqa: E402
import programs  # noqa: E402
import rules  # noqa: E402
import service  # noqa: E402

SEEDS = [1, 2, 3, 4, 5, 6]
STEPS = 600
DOCUMENT = ROOT / "docs" / "differences.md"


def documented():
    """The names in the first column of the document's tables."""
    return re.findall(r"^\| `([a-z-]+)` \|", DOCUMENT.read_text(), re.MULTILINE)


def differences(kew, azurite):
    """The differences, in words."""
    found = []
    for name in ("status", "code", "body"):
        ours, theirs = getattr(kew, name), getattr(azurite, name)
        if not ours == theirs:
            found.append(name)
    for name in sorted(kew.compared.keys() | azurite.compared.keys()):
        if not kew.compared.get(name) == azurite.compared.get(name):
            found.append(name)
    return found


def accepted(request, kew, azurite, found):
    """The names of rules that together explain all differences, or None."""
    left = {"x-ms-meta" if name.startswith("x-ms-meta-") else name for name in found}
    names = []
    for name, check in rules.RULES:
        explained = check(request, kew, azurite)
        if explained and left & set(explained):
            left -= set(explained)
            names.append(name)
    return names if not left else None


def reset(services):
    for one in services:
        one.known = {}
        for name in [*programs.QUEUES, *programs.ODD_QUEUES, "absent"]:
            one.ask(programs.Request("delete", "DELETE", name))
        empty = b"<StorageServiceProperties><Cors/></StorageServiceProperties>"
        query = [("restype", "service"), ("comp", "properties")]
        one.ask(programs.Request("set properties", "PUT", None, query, empty))
    for request in programs.Generator(None).start():
        for one in services:
            one.ask(request)


def remember(one, request, answer):
    """Remembers the names of messages, so that later requests can use them on either service."""
    known = one.known.setdefault(request.queue, [])
    if request.kind in ("put", "get") and answer.ok():
        for identity, receipt in answer.messages:
            at = [place for place, (other, _) in enumerate(known) if other == identity]
            if at:
                known[at[0]] = (identity, receipt)
            else:
                known.append((identity, receipt))
    elif request.kind == "update" and answer.ok() and known:
        place = request.message % len(known)
        known[place] = (known[place][0], answer.headers["x-ms-popreceipt"])


def program(seed, services, steps, used, show):
    generator = programs.Generator(random.Random(seed))
    reset(services)
    done = []
    for step in range(steps):
        request = generator.request()
        answers = [one.ask(request) for one in services]
        done.append(f"{request}\n   kew:     {answers[0]}\n   azurite: {answers[1]}")
        found = differences(*answers)
        if found:
            names = accepted(request, *answers, found)
            if names is None:
                # With --all only the last request is shown, so that many differences stay readable.
                history = "\n".join(line[:1500] for line in done[-1 if show else -6 :])
                print(f"seed {seed}, step {step}: {found} differ without a name\n{history}")
                if not show:
                    return False
                used["UNNAMED " + request.kind] += 1
            else:
                used.update(names)
        for one, answer in zip(services, answers):
            remember(one, request, answer)
        if answers[0].ok() != answers[1].ok() or "body" in found:
            reset(services)
    return True


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("chosen", metavar="SEED", type=int, nargs="*", help=f"{SEEDS} and a random one")
    parser.add_argument("--seeds", type=int, help="how many: those recorded, and random ones")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"requests of a program ({STEPS})")
    parser.add_argument("--all", action="store_true", help="go on after a difference without a name")
    options = parser.parse_args()
    if options.seeds is None:
        options.seeds = len(SEEDS) + 1
    elif options.chosen or options.seeds < len(SEEDS):
        parser.error(f"--seeds is {len(SEEDS)} or more, and goes without seeds of one's own")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    options.kew = Path(os.environ.get("KEW_BINARY", target / "release" / "kew")).resolve()
    options.target = target
    return options


def main():
    options = parse_options()
    names = [name for name, _ in rules.RULES]
    if sorted(set(names)) != sorted(documented()):
        raise SystemExit(f"rules and {DOCUMENT.name} disagree: {set(names) ^ set(documented())}")
    is_whole = not options.chosen and options.steps == STEPS
    seeds = options.chosen or [*SEEDS, *(secrets.randbits(32) for _ in range(options.seeds - len(SEEDS)))]
    print("seeds:", *seeds, flush=True)
    if stale := names_of_nothing():
        raise SystemExit(f"rules.py has names that do not exist: {', '.join(stale)}")
    used, passed, began = collections.Counter(), 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="differential-") as place:
        running = []
        try:
            for start in (compare.start_kew, compare.start_azurite):
                running.append(start(options, Path(place)))
            services = [service.Service(one.name, one.address) for one in running]
            for seed in seeds:
                passed += program(seed, services, options.steps, used, options.all)
        finally:
            for one in running:
                one.stop()
    for name, count in sorted(used.items()):
        print(f"{count:6} {name}")
    unused = sorted(set(names) - set(used))
    for name in unused:
        print(f"     0 {name}")
    failed = len(seeds) - passed + sum(count for name, count in used.items() if "UNNAMED" in name)
    if unused and is_whole and not failed:
        print(f"no program needed {', '.join(unused)}: remove what does not differ, or have programs show it")
        failed += 1
    print(f"{len(seeds) * options.steps} requests in {time.monotonic() - began:.0f} s")
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
