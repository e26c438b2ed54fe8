/* garret log: what agents did in the workspaces of an organisation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/org.h"
#include "cli/show.h"

/* clang-format off */
static const struct opt table[] = {
	ORG_OPT(key, "key", OPT_STRING, "KEY", "of this workspace"),
	ORG_OPT(agent, "agent", OPT_STRING, "ID", "of this agent"),
	ORG_OPT(run, "run", OPT_STRING, "ID", "of this run"),
	ORG_OPT(op, "op", OPT_STRING, "NAME", "read, write, ls_info, mkdir, remove or execute"),
	ORG_OPT(failed, "failed", OPT_FLAG, NULL, "only what failed"),
	ORG_OPT(since, "since", OPT_STRING, "SECONDS", "since 1970"),
	ORG_OPT(until, "until", OPT_STRING, "SECONDS", "since 1970"),
	ORG_OPT(names, "names", OPT_FLAG, NULL, "only which operations the log holds"),
	ORG_RANGE, ORG_COMMON
};
/* clang-format on */

static void show_operations(const json_t *answer)
{
	const json_t *list = json_object_get(answer, "operations");
	char at[32];
	size_t i;
	json_t *o;

	json_array_foreach(list, i, o)
	{
		(void)printf("%s  %-8s %6lld ms  ", org_time(o, "created_at", at),
			     org_text(o, "op"),
			     (long long)json_integer_value(json_object_get(o, "duration_ms")));
		show_text(org_text(o, "target"));
		(void)printf("  %s%s\n", json_is_true(json_object_get(o, "ok")) ? "" : "FAILED ",
			     strcmp(org_text(o, "detail"), "-") ? org_text(o, "detail") : "");
	}
}

static void show_names(const json_t *answer)
{
	const json_t *list = json_object_get(answer, "names");
	size_t i;
	json_t *name;

	json_array_foreach(list, i, name)
	{
		show_text(json_string_value(name));
		(void)puts("");
	}
}

static int log_main(int argc, char **argv)
{
	autobuf struct strbuf path = STRBUF_INIT;
	struct org_command c;

	if (!org_begin(&c, "", &command_log, argc, argv, 0, 0))
		return c.status;
	org_path(&path, &c, c.opts.names ? "log/names" : "log", "");
	if (c.opts.names)
		return org_show(&c, "GET", path.buf, NULL, show_names);
	org_query(&path, "key", c.opts.key);
	org_query(&path, "agent", c.opts.agent);
	org_query(&path, "run", c.opts.run);
	org_query(&path, "op", c.opts.op);
	org_query(&path, "ok", c.opts.failed ? "false" : NULL);
	org_query(&path, "since", c.opts.since);
	org_query(&path, "until", c.opts.until);
	org_range(&path, &c.opts);
	return org_show(&c, "GET", path.buf, NULL, show_operations);
}

const struct command command_log = { "log",
				     "[--failed] [--op NAME] ...",
				     "What agents did in the workspaces of an organisation",
				     table,
				     NULL,
				     log_main };
