"""Who made each API key: the actor of the activity that was written with it, else its member."""


def up(migrator, db):
    db.execute_sql('ALTER TABLE "api_key" ADD COLUMN "created_by" TEXT')
    db.execute_sql('UPDATE "api_key" SET "created_by" = "member_id"')
    made = {}  # the time at which each key was made, which is that of its activity
    for id, member_id, created_at in db.execute_sql('SELECT "id", "member_id", "created_at" FROM "api_key"'):
        made.setdefault((member_id, created_at), []).append(id)
    activities = db.execute_sql(
        'SELECT "entity_id", "created_at", "actor_id" FROM "activity" WHERE "entity" = \'member\''
    )
    for member_id, created_at, actor_id in activities.fetchall():
        for id in made.get((member_id, created_at), []):
            db.execute_sql('UPDATE "api_key" SET "created_by" = ? WHERE "id" = ?', (actor_id, id))
