"""Kill upgrades from the state after each migration, before random statements; check the next start."""

from disks import Disk, own_mounts
from findings import Run
from older import Upgrade, versions


def run(run: Run) -> None:
    # In memory, if possible: a killed process leaves the same files there.
    folder = run.folder if own_mounts() else Disk(run.folder / "disk", 32_000).folder
    upgrades = [Upgrade(folder / version, version) for version in versions()]
    points = [(upgrade, 1 + number) for upgrade in upgrades for number in range(upgrade.statements)]
    run.random.shuffle(points)
    faults = []
    for number in run.rounds(len(points)):
        upgrade, statement = points[number]
        faults += upgrade.interrupted(statement)
    for fault in faults[:5]:
        run.fault(fault)
    what = f"upgrades from {len(upgrades)} versions, killed at {number + 1} of {len(points)} statements"
    run.found("G19", what, f"{len(faults)} faults", "0 faults", not faults)
