/* garret doc ...: documents of an organisation, and files of any of its workspaces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "cli/org.h"
#include "cli/show.h"

#define DOCUMENT_MAX (32u << 20)

/* clang-format off */
static const struct opt plain_table[] = {
	ORG_COMMON
};
/* clang-format on */

static void show_document(const json_t *answer)
{
	show_json(answer);
}

static int get_main(int argc, char **argv)
{
	return org_simple("doc", &doc_commands[0], argc, argv, "GET", "workspaces/%/document",
			  show_document);
}

static int put_main(int argc, char **argv)
{
	autofree char *text = xmalloc(DOCUMENT_MAX + 1);
	autobuf struct strbuf path = STRBUF_INIT;
	struct garret_error err = { 0 };
	struct org_command c;
	json_error_t where;
	json_t *body;
	ssize_t n;

	if (!org_begin(&c, "doc", &doc_commands[1], argc, argv, 1, 2))
		return c.status;
	n = org_read(c.n_words > 1 ? c.words[1] : "-", text, DOCUMENT_MAX + 1, &err);
	if (n > (ssize_t)DOCUMENT_MAX)
		n = garret_fail(&err, GARRET_TOO_LARGE, "the document: at most %u bytes",
				DOCUMENT_MAX);
	if (n < 0)
		return cli_fail(&err);
	body = json_loadb(text, (size_t)n, JSON_ALLOW_NUL, &where);
	if (!body) {
		(void)garret_fail(&err, GARRET_INVALID, "that is no JSON: line %d, %.200s",
				  where.line, where.text);
		return cli_fail(&err);
	}
	org_path(&path, &c, "workspaces/%/document", c.words[0]);
	return org_show(&c, "PUT", path.buf, body, NULL);
}

/* ---- files ---- */

static void show_files(const json_t *answer)
{
	const json_t *list = json_object_get(answer, "entries"), *size;
	size_t i;
	json_t *e;

	json_array_foreach(list, i, e)
	{
		size = json_object_get(e, "size");
		if (json_is_integer(size))
			(void)printf("%12lld  ", (long long)json_integer_value(size));
		else
			(void)printf("%12s  ", "-");
		show_text(org_text(e, "path"));
		(void)puts(!strcmp(org_text(e, "type"), "directory") ? "/" : "");
	}
	if (json_is_string(json_object_get(answer, "unreadable")))
		(void)fprintf(stderr, "garret: %s\n", org_text(answer, "unreadable"));
	else if (json_is_true(json_object_get(answer, "truncated")))
		(void)fputs("garret: there is more\n", stderr);
}

static int ls_main(int argc, char **argv)
{
	return org_simple("doc", &doc_commands[2], argc, argv, "GET", "workspaces/%/files",
			  show_files);
}

static void show_content(const json_t *answer)
{
	const char *in = json_string_value(json_object_get(answer, "content_b64"));
	autofree char *bytes = xstrdup(in ? in : "");
	size_t n = 0;

	if (show_base64(bytes, &n))
		show_bytes(bytes, n);
}

static int cat_main(int argc, char **argv)
{
	autobuf struct strbuf path = STRBUF_INIT;
	struct org_command c;

	if (!org_begin(&c, "doc", &doc_commands[3], argc, argv, 2, 2))
		return c.status;
	org_path(&path, &c, "workspaces/%/file", c.words[0]);
	org_query(&path, "path", c.words[1]);
	return org_show(&c, "GET", path.buf, NULL, show_content);
}

const struct command doc_commands[] = {
	{ "get", "KEY", "A document, as JSON", plain_table, NULL, get_main },
	{ "put", "KEY [FILE]", "Put another one in its place", plain_table, NULL, put_main },
	{ "ls", "KEY", "Files of a workspace, without starting anything", plain_table, NULL,
	  ls_main },
	{ "cat", "KEY PATH", "One file of it", plain_table, NULL, cat_main },
	{ NULL, NULL, NULL, NULL, NULL, NULL },
};

static int doc_main(int argc, char **argv)
{
	return cli_subcommand(&command_doc, argc, argv);
}

const struct command command_doc = {
	"doc", "COMMAND",    "Documents of an organisation, and files of its workspaces",
	NULL,  doc_commands, doc_main
};
