"""This build beside another one, at a small backlog: rate and server CPU."""

import argparse
import statistics

from core_load import LOADS, OPERATIONS, SMALL, in_turn
from core_report import NAMES, number
from core_server import say
from servers import median, spread


class Pair:
    """One figure of both builds, of each round."""

    def __init__(self, what, unit, ours, theirs):
        self.what, self.unit, self.ours, self.theirs = what, unit, ours, theirs
        # A short run may take less than a tick of the processor's clock.
        self.ratios = [a / max(b, 0.1) for a, b in zip(ours, theirs)]

    def values(self):
        return f"{number(median(self.ours))} / {number(median(self.theirs))}{self.unit}"

    def ratio(self):
        low, middle, high = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def compare_builds(options, servers):
    """Runs of this build and another at a small backlog: two lists of figures, by protocol and operation."""
    results = {}
    for protocol in options.protocol or LOADS:
        for start in range(options.starts):
            say(f"{protocol}: start {start + 1} of {options.starts}")
            for operation, runs in one_start(options, servers, protocol, start).items():
                sides = results.setdefault((protocol, operation), ([], []))
                for side, more in zip(sides, runs):
                    side += more
    return results


def one_start(options, servers, protocol, start):
    """Starts both builds, the other one first every second time, and measures them in turn."""
    load_of = LOADS[protocol]
    other = argparse.Namespace(**{**vars(options), "kew": options.paired})
    builds, loads = [("this", options), ("other", other)], {}
    for name, build in builds if start % 2 == 0 else reversed(builds):
        kew = servers.start(f"{protocol}-{name}-{start}", protocol, build)
        loads[name] = load_of(build, kew)
        loads[name].fill(SMALL)
    sides = [loads["this"], loads["other"]]
    found = in_turn(options, sides, sides, options.concurrency or load_of.CONCURRENCY)
    servers.stop()
    return {operation: (found[operation, 0], found[operation, 1]) for operation in OPERATIONS}


def pairs_of(results):
    """The figures that are compared."""
    for (protocol, operation), (ours, theirs) in results.items():
        rates = [[run.rate for run in side] for side in [ours, theirs]]
        costs = [[run.cpu_us for run in side] for side in [ours, theirs]]
        yield Pair(f"{NAMES[protocol]}, {operation}s a second", "", *rates)
        yield Pair(f"{NAMES[protocol]}, server CPU of a {operation}", " µs", *costs)


def print_pairs(options, pairs):
    print(f"\nthis build / {options.paired}")
    wide = max(len(pair.what) for pair in pairs)
    for pair in pairs:
        print(f"  {pair.what:{wide}}  {pair.values():>20}   ratio {spread(pair.ratios)}", flush=True)
