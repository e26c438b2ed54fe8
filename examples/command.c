/*
 * Run a command in a workspace of its own, and keep what it made.
 *
 *	cc command.c $(pkg-config --cflags --libs garret) -o command
 *	./command native 'echo hello > greeting; uname -s'
 */
#include <stdio.h>

#include <garret/garret.h>

static int fail(const char *what, const struct garret_error *err)
{
	fprintf(stderr, "%s: %s\n", what, err->msg);
	return garret_code_exit((int)err->code);
}

static int work(struct garret_workspace *w, const char *script)
{
	const struct garret_run_options options = { .size = sizeof(options),
						    .shell = script,
						    .timeout = 30 };
	struct garret_error err = { 0 };
	struct garret_result result;
	struct garret_list list;
	int status = 0;

	if (garret_run(w, &options, &result, &err) < 0) {
		status = fail("the command", &err); /* what it wrote until then is in result */
	} else {
		fwrite(result.out, 1, result.out_bytes, stdout);
		fwrite(result.err, 1, result.err_bytes, stderr);
		printf("exit code %d\n", result.exit_code);
	}
	garret_result_release(&result);
	if (garret_list_dir(w, ".", &list, &err) < 0)
		return fail("the files", &err);
	for (size_t i = 0; i < list.n; i++)
		printf("%s%s\n", list.entry[i].name, list.entry[i].is_dir ? "/" : "");
	garret_list_release(&list);
	return status;
}

int main(int argc, char **argv)
{
	struct garret_context *context = NULL;
	struct garret_provider *provider = NULL;
	struct garret_workspace *w = NULL;
	struct garret_error err = { 0 };
	struct garret_ref ref;
	int status;

	if (argc < 3) {
		fputs("usage: command PROVIDER SCRIPT [NAME=VALUE...]\n", stderr);
		return 2;
	}
	if (garret_context_new(NULL, &context, &err) < 0 ||
	    garret_provider_open_settings(context, argv[1], (const char *const *)argv + 3,
					  &provider, &err) < 0 ||
	    garret_provider_attach(provider, NULL, &w, &err) < 0)
		status = fail("open", &err);
	else
		status = work(w, argv[2]);
	/* The ref finds the workspace again, in any later process; here it is thrown away. */
	if (w && garret_workspace_ref(w, &ref) == 0 &&
	    garret_provider_destroy(provider, &ref, &err) < 0)
		status = fail("destroy", &err);
	garret_workspace_free(w);
	garret_provider_free(provider);
	garret_context_free(context);
	return status;
}
