/// A peer of the benchmark: PocketBase with a collection of our tasks, and a token that peers.py reads.
migrate((app) => {
  const fields = (type, ...names) => names.map((name) => ({ type, name }));
  const id = { type: "text", name: "id", primaryKey: true, required: true, system: true };
  const ids = { min: 26, max: 36, pattern: "^[0-9a-f-]+$", autogeneratePattern: "[0-9a-f]{26}" };
  const created = { type: "autodate", name: "created_at", onCreate: true };
  const updated = { type: "autodate", name: "updated_at", onCreate: true, onUpdate: true };
  const task = new Collection({
    type: "base",
    name: "task",
    fields: [
      { ...id, ...ids },
      { type: "text", name: "project_id", required: true },
      { type: "text", name: "title", required: true, max: 500 },
      { type: "text", name: "description", max: 50_000 },
      ...fields("text", "milestone_id", "assignee_id", "created_by", "external_id", "question_id"),
      ...fields("text", "status", "priority", "repeat", "repeat_from", "rank"),
      ...fields("date", "start_date", "due_date", "completed_at", "claimed_until"),
      ...fields("number", "number", "repeats", "version"),
      ...fields("json", "labels", "metadata", "checks"),
      created,
      updated,
    ],
    indexes: ["CREATE INDEX task_project ON task (project_id, id)"],
  });
  app.save(task);
  const settings = app.settings();
  settings.logs.maxDays = 0; // no access log
  app.save(settings);
  const superuser = new Record(app.findCollectionByNameOrId("_superusers"));
  superuser.set("email", "bench@example.com");
  superuser.set("password", $security.randomString(30));
  app.save(superuser);
  $os.writeFile($os.getenv("TOKEN_FILE"), superuser.newStaticAuthToken(0), 0o600);
});
