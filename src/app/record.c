/*
 * What a run did, for people to look at: rows of today's few names.  Paths and commands, sizes and exit
 * codes and classes of errors; never what a file or an output holds, and no error's text.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/app_impl.h"
#include "base/text.h"
#include "garret/search.h"

struct row {
	const char *op, *target, *detail;
};

static void add(struct garret_app_run *run, const struct garret_record *r, const struct row *row)
{
	struct app_operation o = { .op = row->op,
				   .target = row->target ? row->target : "",
				   .detail = row->detail,
				   .ok = r->code == GARRET_OK,
				   .seconds = r->seconds };
	char bare[64];

	if (!o.ok) {
		o.detail = garret_code_name(r->code);
	} else if (r->operation == GARRET_OP_RUN && r->exit_code != 0) {
		(void)snprintf(bare, sizeof(bare), "exit %d", r->exit_code);
		o.detail = bare;
		o.ok = false;
	}
	app_spool_add(run, &o);
}

/* The command that would do it: what people know how to read. */
static void glob_command(const struct garret_record *r, struct strbuf *out)
{
	strbuf_addstr(out, "find ");
	shell_quote(out, r->path);
	strbuf_addstr(out, " -path ");
	shell_quote(out, r->pattern);
}

static void grep_command(const struct garret_record *r, struct strbuf *out)
{
	strbuf_addf(out, "grep -rn%s%s", r->flags & GARRET_SEARCH_NO_CASE ? "i" : "",
		    r->flags & GARRET_SEARCH_FIXED ? "F" : "P");
	if (r->include) {
		strbuf_addstr(out, " --include ");
		shell_quote(out, r->include);
	}
	strbuf_addstr(out, " -e ");
	shell_quote(out, r->pattern);
	strbuf_addstr(out, " -- ");
	shell_quote(out, r->path);
}

static void add_search(struct garret_app_run *run, const struct garret_record *r)
{
	autobuf struct strbuf command = STRBUF_INIT;

	if (r->operation == GARRET_OP_GLOB)
		glob_command(r, &command);
	else
		grep_command(r, &command);
	add(run, r, &(struct row){ "execute", command.buf, "" });
}

static void add_rows(struct garret_app_run *run, const struct garret_record *r)
{
	char bytes[32], results[32];

	(void)snprintf(bytes, sizeof(bytes), "%" PRIu64 " bytes", r->bytes);
	(void)snprintf(results, sizeof(results), "%" PRIu64 " results", r->results);
	switch (r->operation) {
	case GARRET_OP_READ:
	case GARRET_OP_ARCHIVE:
	case GARRET_OP_DIGEST:
		add(run, r, &(struct row){ "read", r->path, bytes });
		break;
	case GARRET_OP_WRITE:
	case GARRET_OP_APPEND:
	case GARRET_OP_UNPACK:
		add(run, r, &(struct row){ "write", r->path, bytes });
		break;
	case GARRET_OP_CHMOD:
		add(run, r, &(struct row){ "write", r->path, "" });
		break;
	case GARRET_OP_COPY:
		add(run, r, &(struct row){ "write", r->to, "" });
		break;
	case GARRET_OP_EDIT:
		add(run, r, &(struct row){ "read", r->path, "" });
		add(run, r, &(struct row){ "write", r->path, "" });
		break;
	case GARRET_OP_RENAME:
		add(run, r, &(struct row){ "remove", r->path, "" });
		add(run, r, &(struct row){ "write", r->to, "" });
		break;
	case GARRET_OP_LIST:
	case GARRET_OP_WALK:
		add(run, r, &(struct row){ "ls_info", r->path, results });
		break;
	case GARRET_OP_MAKE_DIR:
		add(run, r, &(struct row){ "mkdir", r->path, "" });
		break;
	case GARRET_OP_REMOVE:
		add(run, r, &(struct row){ "remove", r->path, "" });
		break;
	case GARRET_OP_RUN:
		add(run, r, &(struct row){ "execute", r->command, "" });
		break;
	case GARRET_OP_GLOB:
	case GARRET_OP_GREP:
		add_search(run, r);
		break;
	default:
		break; /* questions */
	}
}

void app_record(void *data, const struct garret_record *r)
{
	struct garret_app_run *run = data;

	app_session_seen(run, r->code);
	if (!app_root(run)->visit)
		add_rows(run, r);
}
