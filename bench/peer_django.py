"""A peer of the benchmark: three of the service's operations with Django and Django REST framework.

One file, otherwise written as their documentation recommends; gunicorn serves it. The tables are those of
`models.py`, with the indexes that these operations use. `DATABASE` in the environment is the path of its
SQLite file.
"""

import hashlib
import json
import os
import secrets
import time
import uuid
from typing import Any

import django
from django.apps import apps
from django.conf import settings

settings.configure(
    SECRET_KEY=secrets.token_hex(),
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    DEBUG=False,
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],  # sets Content-Length
    INSTALLED_APPS=["rest_framework", __name__],
    TIME_ZONE="UTC",
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ["DATABASE"],
            "CONN_MAX_AGE": None,  # each thread keeps its connection
            "OPTIONS": {
                "timeout": 10,
                "transaction_mode": "IMMEDIATE",
                # As durable as ours, with the same checkpoints. Django itself turns foreign keys on.
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; "
                "PRAGMA wal_autocheckpoint=4000",
            },
        }
    },
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": [],  # the view names its own, which is declared below
        "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
        "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
        "UNAUTHENTICATED_USER": None,  # django.contrib.auth is not installed
    },
)
django.setup()

# These need the settings.
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402
from django.utils import timezone  # noqa: E402
from rest_framework import mixins, serializers, viewsets  # noqa: E402
from rest_framework.authentication import BaseAuthentication, get_authorization_header  # noqa: E402
from rest_framework.exceptions import AuthenticationFailed  # noqa: E402
from rest_framework.pagination import LimitOffsetPagination  # noqa: E402
from rest_framework.routers import SimpleRouter  # noqa: E402
from rest_framework.utils.encoders import JSONEncoder  # noqa: E402


def new_id() -> str:
    """A UUIDv7, as ours are: ids sort by age, and insertions append to the indexes."""
    milliseconds = time.time_ns() // 1_000_000
    value = milliseconds << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=value))


# Tables ---------------------------------------------------------------------------------------


class Identified(models.Model):
    id = models.CharField(primary_key=True, max_length=36, default=new_id)

    class Meta:
        abstract = True


def reference(to: str, **options: Any) -> models.ForeignKey:
    """A foreign key without an index of its own; those that these operations use are declared."""
    return models.ForeignKey(to, models.PROTECT, db_index=False, **{"related_name": "+", **options})


class Member(Identified):
    full_name = models.CharField(max_length=200)
    email = models.EmailField()
    role = models.CharField(max_length=20)
    status = models.CharField(max_length=20)

    is_authenticated = True

    class Meta:
        db_table = "member"


class ApiKey(Identified):
    member = reference("Member")
    hash = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "api_key"


class Project(Identified):
    name = models.CharField(max_length=200)
    status = models.CharField(max_length=20)
    owner = reference("Member")

    class Meta:
        db_table = "project"


class Milestone(Identified):
    project = reference("Project")
    title = models.CharField(max_length=500)
    due_date = models.DateTimeField(null=True)

    class Meta:
        db_table = "milestone"


class Task(Identified):
    class Status(models.TextChoices):
        TODO = "todo"
        IN_PROGRESS = "in_progress"
        REVIEW = "review"
        DONE = "done"

    class Priority(models.TextChoices):
        LOW = "low"
        MEDIUM = "medium"
        HIGH = "high"
        URGENT = "urgent"

    project = reference("Project")
    milestone = reference("Milestone", null=True, blank=True)
    title = models.CharField(max_length=500)
    description = models.TextField(max_length=50_000, null=True, blank=True)
    status = models.CharField(max_length=20, choices=Status, default=Status.TODO)
    priority = models.CharField(max_length=20, choices=Priority, default=Priority.MEDIUM)
    assignee = reference("Member", null=True, blank=True)
    creator = reference("Member", db_column="created_by")
    start_date = models.DateTimeField(null=True, blank=True)
    due_date = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True)
    metadata = models.JSONField(default=dict, blank=True)
    version = models.IntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "task"
        ordering = ["-id"]
        indexes = [models.Index(fields=["project", "id"], name="task_project")]


class Comment(Identified):
    task = reference("Task", related_name="comments")
    author = reference("Member")
    content = models.TextField()
    created_at = models.DateTimeField()

    class Meta:
        db_table = "comment"
        indexes = [models.Index(fields=["task", "id"], name="comment_task")]


class Attachment(Identified):
    task = reference("Task", related_name="attachments")
    filename = models.CharField(max_length=255)
    content_type = models.CharField(max_length=200)
    size = models.IntegerField()
    creator = reference("Member", db_column="created_by")
    created_at = models.DateTimeField()

    class Meta:
        db_table = "attachment"
        ordering = ["id"]
        indexes = [models.Index(fields=["task", "id"], name="attachment_task")]


class Activity(Identified):
    actor = reference("Member")
    action = models.CharField(max_length=20)
    entity = models.CharField(max_length=20)
    entity_id = models.CharField(max_length=36)
    title = models.CharField(max_length=500)
    changes = models.JSONField(default=dict)
    request_id = models.CharField(max_length=40)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "activity"


class Event(models.Model):
    seq = models.BigAutoField(primary_key=True)
    id = models.CharField(max_length=36, unique=True)
    name = models.CharField(max_length=50)
    body = models.TextField()
    created_at = models.DateTimeField()

    class Meta:
        db_table = "event"


def create_tables() -> None:
    """Create the tables in a new file."""
    with connection.schema_editor() as editor:
        for model in apps.get_models():
            editor.create_model(model)


# What is taken and answered -------------------------------------------------------------------


class ProfileSerializer(serializers.ModelSerializer):
    class Meta:
        model = Member
        fields = ["id", "full_name", "email", "role"]


class ProjectSerializer(serializers.ModelSerializer):
    class Meta:
        model = Project
        fields = ["id", "name", "status", "owner_id"]


class MilestoneSerializer(serializers.ModelSerializer):
    class Meta:
        model = Milestone
        fields = ["id", "title", "due_date"]


class AttachmentSerializer(serializers.ModelSerializer):
    created_by = serializers.CharField(source="creator_id")

    class Meta:
        model = Attachment
        fields = ["id", "task_id", "filename", "content_type", "size", "created_by", "created_at"]


class TaskSerializer(serializers.ModelSerializer):
    project_id = serializers.PrimaryKeyRelatedField(
        source="project", queryset=Project.objects.exclude(status="archived")
    )
    milestone_id = serializers.PrimaryKeyRelatedField(
        source="milestone", queryset=Milestone.objects.all(), required=False, allow_null=True
    )
    assignee_id = serializers.PrimaryKeyRelatedField(
        source="assignee", queryset=Member.objects.all(), required=False, allow_null=True
    )
    created_by = serializers.CharField(source="creator_id", read_only=True)
    metadata = serializers.DictField(required=False)

    class Meta:
        model = Task
        fields = [
            "id",
            "project_id",
            "milestone_id",
            "title",
            "description",
            "status",
            "priority",
            "assignee_id",
            "created_by",
            "start_date",
            "due_date",
            "completed_at",
            "metadata",
            "version",
            "created_at",
            "updated_at",
        ]
        read_only_fields = ["id", "status", "completed_at", "version", "created_at", "updated_at"]

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        milestone, start, due = (fields.get(name) for name in ("milestone", "start_date", "due_date"))
        if milestone and milestone.project_id != fields["project"].id:
            raise serializers.ValidationError({"milestone_id": "belongs to another project"})
        if start and due and start > due:
            raise serializers.ValidationError({"start_date": "must not be after due_date"})
        return fields


class TaskDetailSerializer(TaskSerializer):
    comment_count = serializers.IntegerField()
    attachments = AttachmentSerializer(many=True)
    project = ProjectSerializer()
    milestone = MilestoneSerializer()
    assignee = ProfileSerializer()
    creator = ProfileSerializer()

    class Meta(TaskSerializer.Meta):
        fields = [
            *TaskSerializer.Meta.fields,
            "comment_count",
            "attachments",
            "project",
            "milestone",
            "assignee",
            "creator",
        ]


# The operations -------------------------------------------------------------------------------


class KeyAuthentication(BaseAuthentication):
    """The member whose API key was sent as `Authorization: Bearer …`."""

    def authenticate(self, request: Any) -> tuple[Member, ApiKey] | None:
        scheme, _, key = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        valid = models.Q(expires_at=None) | models.Q(expires_at__gt=timezone.now())
        try:
            api_key = ApiKey.objects.select_related("member").get(
                valid, hash=hashlib.sha256(key).hexdigest(), revoked_at=None, member__status="active"
            )
        except ApiKey.DoesNotExist as error:
            raise AuthenticationFailed("no valid API key") from error
        return api_key.member, api_key

    def authenticate_header(self, request: Any) -> str:
        return "Bearer"


class Pagination(LimitOffsetPagination):
    default_limit = 20
    max_limit = 100


class TaskViewSet(
    mixins.CreateModelMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet
):
    authentication_classes = [KeyAuthentication]
    pagination_class = Pagination

    def get_serializer_class(self) -> type:
        return TaskDetailSerializer if self.action == "retrieve" else TaskSerializer

    def get_queryset(self) -> models.QuerySet:
        tasks = Task.objects.all()
        if self.action == "retrieve":
            related = tasks.select_related("project", "milestone", "assignee", "creator")
            return related.prefetch_related("attachments").annotate(comment_count=models.Count("comments"))
        if project_id := self.request.query_params.get("project_id"):
            tasks = tasks.filter(project_id=project_id)
        return tasks

    @transaction.atomic
    def perform_create(self, serializer: TaskSerializer) -> None:
        """Store the task, its activity and its event in one transaction."""
        caller, now, request_id = self.request.user, timezone.now(), f"req_{secrets.token_hex(16)}"
        task = serializer.save(creator=caller, created_at=now, updated_at=now)
        Activity.objects.create(
            actor=caller,
            action="created",
            entity="task",
            entity_id=task.id,
            title=task.title,
            request_id=request_id,
            created_at=now,
        )
        event_id = f"evt_{new_id().replace('-', '')}"
        body = {
            "id": event_id,
            "event": "task.created",
            "timestamp": now,
            "data": {"task": serializer.data},
            "actor": ProfileSerializer(caller).data,
            "request_id": request_id,
        }
        text = json.dumps(body, cls=JSONEncoder)
        Event.objects.create(id=event_id, name="task.created", body=text, created_at=now)


router = SimpleRouter(trailing_slash=False)
router.register("api/v1/tasks", TaskViewSet, basename="task")
urlpatterns = router.urls
application = get_wsgi_application()
