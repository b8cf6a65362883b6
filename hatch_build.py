"""What the wheel depends on: what serves, of requirements.txt."""

from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Dependencies(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        serving = Path(self.root, "requirements.txt").read_text().partition("# What tests")[0]
        metadata["dependencies"] = [line for line in serving.splitlines() if "==" in line]
