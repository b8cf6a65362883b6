"""Runs a state machine until a part's time is over, and finds the shortest steps to what it breaks."""

import sys
import time
from collections.abc import Callable

from findings import Run
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import HypothesisException
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test

SHORTEN_SECONDS = 30.0  # for making the steps to a failure fewer
MOST_SHOWN = 3000  # characters of these steps
# Of ten and more, hypothesis makes the first ones by repeating the simplest step.
EXAMPLES_AT_A_TIME = 9


class TimeIsOver(BaseException):
    """Ends an example: hypothesis lets through what is no `Exception`."""


class Exploration:
    """Examples of one machine: how many, their steps, and the shortest one that failed."""

    def __init__(self, ends_at: float):
        self.examples = self.steps = 0
        self.failure = ""  # in one line: the steps, and what was wrong after them
        self.length = 0  # of the steps to the failure
        self.ends_at = ends_at
        self.is_over = False

    def step(self) -> None:
        """Count a step; ends the example if the time is over. The first one is always done."""
        self.steps += 1
        self.is_over |= self.examples > 1 and time.monotonic() > self.ends_at
        if self.is_over:
            raise TimeIsOver

    def failed(self, lines: list[str], failure: Exception) -> None:
        """Keep the failure of an example if it took fewer steps than the one before."""
        if not self.failure:
            self.ends_at = time.monotonic() + SHORTEN_SECONDS
        if not self.failure or len(lines) < self.length:
            told = " ".join(f"{type(failure).__name__}: {failure}".split())
            self.failure = f"{'; '.join(lines)[-MOST_SHOWN:]}: {told[:MOST_SHOWN]}"
            self.length = len(lines)


class Machine(RuleBasedStateMachine):
    """A state machine of the campaign. Its rules tell what they send and what comes, line by line."""

    exploration: Exploration

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def tell(self, line: str) -> None:
        """Add a line to the steps that are shown if this example fails."""
        self.lines.append(line)

    @invariant()
    def a_step_is_done(self) -> None:
        self.exploration.step()

    def teardown(self) -> None:
        """Keep what failed; called while the exception of the failure is under way."""
        failure = sys.exception()
        if isinstance(failure, Exception) and not isinstance(failure, HypothesisException):
            self.exploration.failed(self.lines, failure)


def explore(run: Run, machine: Callable[[], Machine], most_steps: int = 50) -> Exploration:
    """Do examples of a machine until the part's time is over, or until one fails, which becomes a fault."""
    exploration = Exploration(run.ends_at)

    def make() -> Machine:
        exploration.examples += 1
        made = machine()
        made.exploration = exploration
        return made

    set_hypothesis_home_dir(run.folder / "hypothesis")  # by default it is in the working directory
    options = settings(
        max_examples=EXAMPLES_AT_A_TIME,
        stateful_step_count=most_steps,
        phases=[Phase.generate, Phase.shrink],
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    while not (exploration.failure or exploration.is_over):
        seeded = seed(run.random.getrandbits(32))(make)
        try:
            run_state_machine_as_test(seeded, settings=options)  # type: ignore[arg-type]
        except (TimeIsOver, Exception):  # the end may look as if the steps were not repeatable
            if not (exploration.failure or exploration.is_over):
                raise
    if exploration.failure:
        run.fault(exploration.failure)
    return exploration
