/*
 * What the log of the application layer costs: CPU time of this process for an operation that is
 * recorded, with all that brings its row into the database; and whether 10,000 a second for ten seconds
 * are all there.
 *
 *	app-recording [DATABASE]	sqlite:PATH or postgresql://...; a file of its own without
 *
 * The records are what the library gives for real ones.  The operations themselves aren't done: they cost
 * a hundred times as much, and their noise would be the result.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "app/app_impl.h"
#include "base/fd.h"
#include "base/time.h"

#define MANY 200000
#define A_SECOND 10000
#define SECONDS 10
#define MOST_US 20.0

static double cpu_us(void)
{
	struct rusage u;

	(void)getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void must(int rc, const struct garret_error *err)
{
	if (rc == 0)
		return;
	(void)fprintf(stderr, "app-recording: %s\n", err->msg);
	exit(1);
}

static void record(struct garret_app_run *run, unsigned i)
{
	char path[64];
	struct garret_record r = { .size = sizeof(r),
				   .operation = i % 3 ? GARRET_OP_READ : GARRET_OP_RUN,
				   .path = path,
				   .command = "python3 -m pytest -q tests/test_something.py",
				   .bytes = i,
				   .exit_code = (int)(i % 2),
				   .seconds = 0.001 };

	(void)snprintf(path, sizeof(path), "src/package/module_%u.py", i);
	app_record(run, &r);
}

static uint64_t kept(struct garret_app *app, const char *organisation)
{
	const struct garret_app_log_filter f = { .size = sizeof(f), .max = 1 };
	struct garret_error err = { 0 };
	struct garret_app_log log;
	uint64_t total;

	must(garret_app_log_query(app, organisation, &f, &log, &err), &err);
	total = log.total;
	garret_app_log_release(&log);
	return total;
}

static bool judge(const char *what, bool fine)
{
	(void)printf("%s %s\n", fine ? "ok  " : "FAIL", what);
	return fine;
}

/* As quickly as it goes: what one costs. */
static bool cost(struct garret_app_run *run)
{
	const double from = cpu_us();
	char text[128];
	double each;

	for (unsigned i = 0; i < MANY; i++)
		record(run, i);
	(void)app_spool_flush(run->app, NULL);
	each = (cpu_us() - from) / MANY;
	(void)snprintf(text, sizeof(text), "%.1f us of CPU an operation (at most %.0f)", each,
		       MOST_US);
	return judge(text, each <= MOST_US);
}

/* So many a second, and then nothing is missing and nothing is there twice. */
static bool pace(struct garret_app_run *run)
{
	const uint64_t before = kept(run->app, run->facts.organisation), begun = now_us();
	uint64_t took, there;
	char text[128];

	for (unsigned i = 0; i < A_SECOND * SECONDS; i++) {
		const uint64_t due = begun + (uint64_t)i * 1000000 / A_SECOND;

		while (now_us() < due)
			(void)usleep(100);
		record(run, i);
	}
	took = now_us() - begun;
	there = kept(run->app, run->facts.organisation) - before;
	(void)snprintf(text, sizeof(text), "%u operations in %.1f s: %llu in the log",
		       A_SECOND * SECONDS, (double)took / 1e6, (unsigned long long)there);
	return judge(text, there == A_SECOND * SECONDS && took < (SECONDS + 1) * 1000000ull);
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/garret-recording-XXXXXX", organisation[GARRET_APP_ID], id[GARRET_APP_ID];
	struct garret_app_sandbox sandbox = { .backend = GARRET_APP_SERVICE };
	struct garret_app_connection c = { .size = sizeof(c),
					   .name = "nowhere",
					   .address = "http://127.0.0.1:1" };
	struct garret_app_options o = { .size = sizeof(o) };
	struct garret_context *context = NULL;
	struct garret_app_run *run = NULL;
	struct garret_app *app = NULL;
	struct garret_error err = { 0 };
	unsigned fine = 0;

	if (!mkdtemp(dir))
		return 1;
	o.state_dir = dir;
	o.database = argc > 1 ? argv[1] : NULL;
	must(garret_context_new(NULL, &context, &err), &err);
	must(garret_app_open(context, &o, &app, &err), &err);
	app_new_id(organisation);
	app_new_id(id);
	must(garret_app_connection_put(app, organisation, &c, "token", &err), &err);
	{
		const struct garret_app_facts facts = { .size = sizeof(facts),
							.organisation = organisation,
							.agent = id,
							.run = id,
							.conversation = id };

		must(garret_app_run_open(app, &facts, &sandbox, &run, &err), &err);
	}
	fine += cost(run);
	fine += pace(run);
	garret_app_run_close(run, 0);
	garret_app_free(app);
	garret_context_free(context);
	(void)remove_tree_at(AT_FDCWD, dir);
	(void)printf("%u passed, %u failed\n", fine, 2 - fine);
	return fine != 2;
}
