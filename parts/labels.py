"""The labels of all tasks: a label is spelled as it was first used, and counted."""

from collections import Counter
from typing import Any

from peewee import SQL, fn

import schemas
from app import api
from database import Row, caseless, fold, placeholder, statement
from members import Transaction
from models import MAX_LABELS, Task
from wire import operation


class Labels:
    @statement
    def with_label(cls: Any):
        """The labels of one task that has this label; for a new label SQLite reads every labelled task."""
        has_label = fn.INSTR(Task.label_keys, placeholder("label")) > 0
        return Task.select(Task.labels).where(Task.is_labelled, has_label).limit(1)

    @classmethod
    def spelled(cls, transaction: Transaction, labels: list[str] | None) -> list[str]:
        """Return these labels, each once and spelled as in the tasks that already have it.

        Looking for a new label takes as long as reading all labels. So a transaction that gives tasks more
        labels than one task can have reads all of them, once.
        """
        if not labels:
            return []
        sent: dict[str, str] = {}
        for label in labels:
            sent.setdefault(caseless(label), label)
        spellings: dict[str, str] = transaction.cache.setdefault("spellings", {})  # by the caseless label
        if len(spellings | sent) <= MAX_LABELS:
            for key in sent.keys() - spellings.keys():
                if row := cls.with_label.one(label=f"\x1f{key}\x1f"):
                    spellings[key] = next(label for label in row["labels"] if caseless(label) == key)
        elif len(spellings) <= MAX_LABELS:
            spellings |= {caseless(label): label for row in cls.labelled.all() for label in row["labels"]}
        return [spellings.setdefault(key, label) for key, label in sent.items()]

    @statement
    def labelled(cls: Any):
        counts = Task.select(Task.labels, fn.COUNT(SQL("*")).alias("count"))
        return counts.where(Task.is_labelled).group_by(Task.labels)

    @classmethod
    def counts(cls) -> list[Row]:
        """Return each label with the number of its tasks, by name."""
        counts = Counter[str]()
        for row in cls.labelled.all():
            counts.update(dict.fromkeys(row["labels"], row["count"]))
        return [{"label": label, "count": counts[label]} for label in sorted(counts, key=fold)]


Task.all_labels = Labels
LabelShown = schemas.response_schema("Label", label=str, count=int)
LabelListShown = schemas.response_schema("LabelList", labels=[LabelShown])


@api.get("/labels")
@operation(gives=LabelListShown)
def list_labels() -> Row:
    """List the labels that tasks have, each with its number of tasks."""
    return {"labels": Labels.counts()}
