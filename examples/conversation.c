/*
 * Two turns of a conversation share their files, and nobody else sees them.
 *
 *	cc conversation.c $(pkg-config --cflags --libs garret-app) -o conversation
 *	./conversation STATE_DIR
 *
 * Without a connection a workspace is a document in the database, so this needs no service and no root.
 */
#include <garret/app.h>
#include <stdio.h>
#include <stdlib.h>

#define ORGANISATION "0192f0c1-4f6e-7c3a-9d52-6a1b2c3d4e5f"
#define AGENT "5c1d3e7a-0b2f-4a6c-8e9d-1f2a3b4c5d6e"
#define CONVERSATION "a7b8c9d0-e1f2-4345-9678-90abcdef1234"

static int fail(const struct garret_error *err)
{
	(void)fprintf(stderr, "conversation: %s\n", err->msg);
	return 1;
}

/* One turn: the first leaves a note, the next one finds it. */
static int turn(struct garret_app *app, const char *organisation, const char *run_id)
{
	const struct garret_app_facts facts = { .size = sizeof(facts),
						.organisation = organisation,
						.agent = AGENT,
						.run = run_id,
						.conversation = CONVERSATION };
	struct garret_error err = { 0 };
	struct garret_app_run *run;
	struct garret_workspace *w;
	char *note = NULL;
	int rc;

	if (garret_app_run_open(app, &facts, NULL, &run, &err) < 0)
		return fail(&err);
	w = garret_app_run_workspace(run);
	rc = garret_read_text(w, "note.txt", &note, &err);
	if (rc == -GARRET_NOT_FOUND) {
		(void)puts("no note yet");
		rc = garret_write_text(w, "note.txt", "hello from the turn before", 0, &err);
	} else if (rc == 0) {
		(void)printf("note: %s\n", note);
	}
	free(note);
	garret_app_run_close(run, 0);
	return rc < 0 ? fail(&err) : 0;
}

int main(int argc, char **argv)
{
	struct garret_app_options options = { .size = sizeof(options) };
	struct garret_context *context;
	struct garret_error err = { 0 };
	struct garret_app *app;
	int status;

	if (argc != 2) {
		(void)fputs("usage: conversation STATE_DIR\n", stderr);
		return 2;
	}
	options.state_dir = argv[1];
	if (garret_context_new(NULL, &context, &err) < 0)
		return fail(&err);
	if (garret_app_open(context, &options, &app, &err) < 0) {
		garret_context_free(context);
		return fail(&err);
	}
	status = turn(app, ORGANISATION, "00000000-0000-4000-8000-000000000001");
	if (!status)
		status = turn(app, ORGANISATION, "00000000-0000-4000-8000-000000000002");
	/* The same conversation's id, of somebody else. */
	if (!status)
		status = turn(app, AGENT, "00000000-0000-4000-8000-000000000003");
	garret_app_free(app);
	garret_context_free(context);
	return status;
}
