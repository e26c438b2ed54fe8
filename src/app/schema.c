/*
 * The database, in steps.  A step that was released is never edited; what changes the schema is a
 * new one.  Truth is 0 or 1, times are seconds since 1970, ids are 32 hexadecimal digits.
 */
#include "app/app_impl.h"
#include "base/mem.h"

const struct db_step app_steps[] = {
	{ "0001_base",
	  "CREATE TABLE sandbox_connections("
	  " id TEXT NOT NULL PRIMARY KEY, organisation TEXT NOT NULL, kind TEXT NOT NULL,"
	  " name TEXT NOT NULL, address TEXT NOT NULL, account TEXT NOT NULL, runtime TEXT NOT NULL,"
	  " token {BLOB}, is_default BIGINT NOT NULL, changes BIGINT NOT NULL,"
	  " created_at DOUBLE PRECISION NOT NULL,"
	  " UNIQUE(organisation, name));"
	  "CREATE UNIQUE INDEX sandbox_connections_default ON sandbox_connections(organisation)"
	  " WHERE is_default = 1;"
	  "CREATE TABLE agent_workspaces("
	  " id TEXT NOT NULL PRIMARY KEY, organisation TEXT NOT NULL, scope_key TEXT NOT NULL,"
	  " scope TEXT NOT NULL, backend TEXT NOT NULL, agent TEXT NOT NULL, conversation TEXT,"
	  " owner_ref TEXT, connection TEXT, session_id TEXT, files {JSON},"
	  " bytes_total BIGINT NOT NULL, version BIGINT NOT NULL,"
	  " created_at DOUBLE PRECISION NOT NULL, last_used_at DOUBLE PRECISION NOT NULL,"
	  " UNIQUE(organisation, scope_key));"
	  "CREATE INDEX agent_workspaces_conversation ON agent_workspaces(organisation, conversation);"
	  "CREATE TABLE sandbox_operations("
	  " id {ID}, organisation TEXT NOT NULL, agent TEXT, run TEXT, session_key TEXT NOT NULL,"
	  " op TEXT NOT NULL, target TEXT NOT NULL, detail TEXT NOT NULL, ok BIGINT NOT NULL,"
	  " duration_ms BIGINT NOT NULL, created_at DOUBLE PRECISION NOT NULL);"
	  "CREATE INDEX sandbox_operations_organisation ON sandbox_operations(organisation, created_at);"
	  "CREATE INDEX sandbox_operations_age ON sandbox_operations(created_at);",
	  "DROP TABLE sandbox_operations; DROP TABLE agent_workspaces; DROP TABLE sandbox_connections;" },

	/* Directories that were made; null: none were, as in all rows before this step. */
	{ "0002_workspace_directories",
	  "ALTER TABLE agent_workspaces ADD COLUMN directories {JSON};",
	  "ALTER TABLE agent_workspaces DROP COLUMN directories;" },

	/* Which recording of a session a row holds: two sessions of one name have the same id. */
	{ "0003_session_epoch",
	  "ALTER TABLE agent_workspaces ADD COLUMN session_epoch BIGINT NOT NULL DEFAULT 0;",
	  "ALTER TABLE agent_workspaces DROP COLUMN session_epoch;" },

	/* What a crash leaves: open runs, environments to be removed, operations not yet in the log. */
	{ "0004_ownership",
	  "CREATE TABLE sandbox_runs("
	  " organisation TEXT NOT NULL, run TEXT NOT NULL, agent TEXT NOT NULL, scope_key TEXT NOT NULL,"
	  " scope TEXT NOT NULL, backend TEXT NOT NULL, connection TEXT, runtime TEXT NOT NULL,"
	  " include_execute BIGINT NOT NULL, session_id TEXT, session_epoch BIGINT NOT NULL,"
	  " attached BIGINT NOT NULL, lost BIGINT NOT NULL,"
	  " parked BIGINT NOT NULL, document {JSON}, spills {JSON}, owner TEXT NOT NULL,"
	  " opened_at DOUBLE PRECISION NOT NULL, seen_at DOUBLE PRECISION NOT NULL,"
	  " PRIMARY KEY(organisation, run));"
	  "CREATE INDEX sandbox_runs_owner ON sandbox_runs(owner);"
	  "CREATE TABLE sandbox_purges("
	  " organisation TEXT NOT NULL, connection TEXT NOT NULL, session_id TEXT NOT NULL,"
	  " tries BIGINT NOT NULL, code TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,"
	  " next_at DOUBLE PRECISION NOT NULL, PRIMARY KEY(organisation, connection, session_id));"
	  "CREATE TABLE sandbox_spools("
	  " owner TEXT NOT NULL PRIMARY KEY, drained BIGINT NOT NULL);",
	  "DROP TABLE sandbox_spools; DROP TABLE sandbox_purges; DROP TABLE sandbox_runs;" },
};

const size_t app_n_steps = ARRAY_SIZE(app_steps);
