"""What the numbers, which Hypothesis draws for references and times, mean in a workspace."""

from harness import NOBODY
from workspace_model import Workspace
from workspace_shown import Row

EQUALITIES = ("project_id", "milestone_id", "assignee_id", "status", "priority")
# The column of a task that each filter of a list compares.
COLUMNS = {name: name for name in EQUALITIES} | {"due_before": "due_date", "updated_since": "updated_at"}


class Choices:
    """Chooses among what there is; a number past the end begins again with the first."""

    def __init__(self, model: Workspace):
        self.model = model

    def pick(self, kind: str, number: int) -> str:
        """The id of one of the rows of a kind."""
        ids = sorted(self.model.rows[kind])
        return ids[number % len(ids)] if ids else NOBODY

    def resolved(self, fields: Row, project_id: str = "") -> Row:
        """The fields of a body with ids in place of numbers; `project_id` is a task's."""
        resolved = {}
        for name, value in fields.items():
            if name == "participant_ids":
                value = value and list(dict.fromkeys(self._reference("owner_id", number) for number in value))
            elif isinstance(value, int) and name.endswith("_id"):
                value = self._reference(name, value, project_id)
            resolved[name] = value
        return resolved

    def _reference(self, name: str, number: int, project_id: str = "") -> str | None:
        """What a reference may be: null, one that exists, or one that does not."""
        model = self.model
        if name == "milestone_id":
            mine = model.ids_of("milestone", project_id=project_id)
            others = [id for id in model.rows["milestone"] if id not in mine]
            ids = mine * 2 + (others[:1] or model.gone["milestone"][:1] or [NOBODY])
        elif name == "project_id":
            ids = [*model.rows["project"], *(model.gone["project"][:1] or [NOBODY])]
        else:
            removed = [member for member in model.members if not model.is_there("member", member)]
            ids = [member for member in model.members if member not in removed] + (removed[:1] or [NOBODY])
        choices = ids if name == "owner_id" else [None, *ids]
        return choices[number % len(choices)]

    def resolved_query(self, query: Row) -> Row:
        """The query of a list with ids and times in place of numbers."""
        model, resolved = self.model, dict(query)
        for name, value in query.items():
            if name in ("limit", "offset") or not isinstance(value, int):
                continue
            if name == "assignee_id":
                some = ["me", "none", *model.members]
            elif name in ("project_id", "milestone_id"):
                kind = name.removesuffix("_id")
                some = (sorted(model.rows[kind]) * 2 + model.gone[kind][:1]) or [NOBODY]
            else:
                tasks = [model.rows["task"][id] for id in sorted(model.rows["task"])]
                some = [task[COLUMNS[name]] for task in tasks if task[COLUMNS[name]]] or ["2026-11-20"]
            resolved[name] = some[value % len(some)]
        return resolved
