"""Run a state machine until a part's time is over, and find the shortest steps to a failure."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from findings import Run
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import HypothesisException
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test

QUIET = settings(
    phases=[Phase.generate, Phase.shrink],
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    max_examples=9,  # of ten and more, hypothesis makes the first ones by repeating the simplest step
    suppress_health_check=list(HealthCheck),
)
SHORTEN_SECONDS = 30.0  # to reduce the steps to a failure
MOST_SHOWN = 3000  # characters of these steps


class TimeIsOver(BaseException):
    """Ends an example: hypothesis only catches an `Exception`."""


@dataclass
class Exploration:
    """Examples of one machine: how many, their steps, and the shortest one that failed."""

    ends_at: float
    examples: int = 0
    steps: int = 0
    failure: str = ""  # in one line: the steps and the problem
    length: int = 0  # of the steps to the failure
    is_over: bool = False


class Machine(RuleBasedStateMachine):
    """A state machine of the campaign. Its rules print each request and each response on a line."""

    exploration: Exploration

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def tell(self, line: str) -> None:
        self.lines.append(line)

    @invariant()
    def a_step_is_done(self) -> None:
        """End the example if the time is over. The first example is always completed."""
        exploration = self.exploration
        exploration.steps += 1
        exploration.is_over |= exploration.examples > 1 and time.monotonic() > exploration.ends_at
        if exploration.is_over:
            raise TimeIsOver

    def teardown(self) -> None:
        """Keep the current failure, if it took fewer steps than the previous one."""
        failure, exploration, length = sys.exception(), self.exploration, len(self.lines)
        if not isinstance(failure, Exception) or isinstance(failure, HypothesisException):
            return
        if not exploration.failure:
            exploration.ends_at = time.monotonic() + SHORTEN_SECONDS
        if not exploration.failure or length < exploration.length:
            told = " ".join(f"{type(failure).__name__}: {failure}".split())
            exploration.failure = f"{'; '.join(self.lines)[-MOST_SHOWN:]}: {told[:MOST_SHOWN]}"
            exploration.length = length


def explore(run: Run, machine: Callable[[], Machine], most_steps: int = 50) -> Exploration:
    """Run examples of a machine until the part's time is over, or until one fails. A failure is a fault."""
    exploration = Exploration(run.ends_at)

    def make() -> Machine:
        exploration.examples += 1
        made = machine()
        made.exploration = exploration
        return made

    # Hypothesis would use the working directory by default.
    set_hypothesis_home_dir(run.folder / "hypothesis")
    options = settings(QUIET, stateful_step_count=most_steps)
    while not (exploration.failure or exploration.is_over):
        try:
            seeded: Any = seed(run.random.getrandbits(32))(make)
            run_state_machine_as_test(seeded, settings=options)
        # At the end, hypothesis may report that the steps cannot be repeated.
        except (TimeIsOver, Exception):
            if not (exploration.failure or exploration.is_over):
                raise
    if exploration.failure:
        run.fault(exploration.failure)
    return exploration
