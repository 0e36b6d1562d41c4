"""This build beside another one, at a small backlog: rate and server CPU."""

import argparse

from core_load import LOADS, OPERATIONS, SMALL, in_turn
from servers import median, spread


def compare_builds(options, servers):
    """Pairs of this build and another: rate and CPU at a small backlog."""
    other = argparse.Namespace(**{**vars(options), "kew": options.paired})
    results = {}
    for protocol in options.protocol or LOADS:
        load_of = LOADS[protocol]
        concurrency = options.concurrency or load_of.CONCURRENCY
        sides = []
        for name, build in [("this", options), ("other", other)]:
            kew = servers.start(f"{protocol}-{name}", protocol, build)
            sides.append(load_of(build, kew))
            sides[-1].fill(SMALL)
        found = in_turn(options, sides, sides, concurrency)
        for operation in OPERATIONS:
            results[f"{protocol}, {operation}"] = found[operation, 0], found[operation, 1]
        servers.stop()
    for name, (ours, theirs) in results.items():
        print(f"\n{name}: this build / {options.paired}")
        for what, pick in [("rate", lambda run: run.rate), ("server CPU", lambda run: run.cpu_us)]:
            values = [median(map(pick, side)) for side in [ours, theirs]]
            # A short run may take less than a tick of the processor's clock.
            ratios = [pick(a) / max(pick(b), 0.1) for a, b in zip(ours, theirs)]
            print(f"  {what:10} {values[0]:10.1f} / {values[1]:10.1f}   ratio {spread(ratios)}")
    return {
        name: [[vars(run) for run in side] for side in sides] for name, sides in results.items()
    }
