"""What is acknowledged stays, whole, and its events arrive, whatever is killed amid the writes."""

from random import Random

from crashes import Storm
from outages import Recorder, environment


def test_a_server_that_is_killed_amid_writes_loses_nothing_and_leaves_nothing_half_done(launch, new_receiver):
    """The campaign's storm begins with one worker, which keeps the order; here three could send twice."""
    recorders = [Recorder(new_receiver(), name) for name in ("healthy", "fickle")]
    server = launch(**environment(recorders, WEB_CONCURRENCY="3"))
    storm = Storm(server, recorders, Random(3), workers=3, writers=6)
    storm.rage(range(2, 5))  # two kills, and a stop as the fifth of the campaign's cycles has
    assert storm.problems == []
    assert "in order" in server.flask("doctor").stdout
