/*
 * Files without commands: a document of notes in one JSON file, every change on the disk, and a
 * line on stderr for each operation.
 *
 *	cc notes.c $(pkg-config --cflags --libs garret) -o notes
 *	./notes /tmp/notes.json add todo.txt 'buy milk'
 *	./notes /tmp/notes.json find milk
 */
#include <stdio.h>
#include <string.h>

#include <garret/garret.h>

static void log_line(void *data, const struct garret_record *r)
{
	fprintf(data, "%s %s: %s, %llu bytes\n", garret_operation_name(r->operation),
		r->path ? r->path : "-", garret_code_name((int)r->code),
		(unsigned long long)r->bytes);
}

static int add(struct garret_workspace *w, const char *path, const char *text,
	       struct garret_error *err)
{
	char line[1000];
	int n = snprintf(line, sizeof(line), "%s\n", text);

	return garret_append(w, path, line, (size_t)n, 0, err);
}

static int find(struct garret_workspace *w, const char *pattern, struct garret_error *err)
{
	struct garret_matches m;
	int rc = garret_grep(w, ".", pattern, NULL, GARRET_SEARCH_FIXED, 0, &m, err);

	for (size_t i = 0; i < m.n; i++)
		printf("%s:%llu: %s\n", m.match[i].path, (unsigned long long)m.match[i].line,
		       m.match[i].text);
	garret_matches_release(&m);
	return rc;
}

int main(int argc, char **argv)
{
	struct garret_context *context = NULL;
	struct garret_options *options = NULL;
	struct garret_provider *provider = NULL;
	struct garret_workspace *w = NULL, *logged = NULL;
	struct garret_error err = { 0 };
	int rc;

	if (argc < 4) {
		fputs("usage: notes FILE add PATH TEXT | notes FILE find TEXT\n", stderr);
		return 2;
	}
	rc = garret_context_new(NULL, &context, &err);
	if (rc == 0)
		rc = garret_options_new("state", &options, &err);
	if (rc == 0)
		rc = garret_options_set(options, "file", argv[1], &err);
	if (rc == 0)
		rc = garret_options_set(options, "max_bytes", "4m", &err);
	if (rc == 0)
		rc = garret_provider_open(context, options, &provider, &err);
	if (rc == 0)
		rc = garret_provider_attach(provider, NULL, &w, &err);
	if (rc == 0)
		rc = garret_wrap_recording(w, log_line, stderr, &logged, &err);
	if (rc == 0)
		rc = strcmp(argv[2], "add") == 0 && argc > 4 ? add(logged, argv[3], argv[4], &err)
							     : find(logged, argv[3], &err);
	if (rc < 0)
		fprintf(stderr, "notes: %s\n", err.msg);
	garret_workspace_free(logged);
	garret_workspace_free(w);
	garret_provider_free(provider);
	garret_options_free(options);
	garret_context_free(context);
	return rc < 0 ? garret_code_exit((int)err.code) : 0;
}
