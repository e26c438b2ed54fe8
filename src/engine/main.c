/* garret-engine: builds isolated sessions for one peer, or for those that may connect. */
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "engine/engine.h"
#include "engine/keeper.h"
#include "engine/nursery.h"
#include "engine/reaper.h"
#include "engine/serve.h"
#include "engine/session.h"
#include "engine/slots.h"
#include "engine/store.h"
#include "engine/zygote.h"
#include "init/init.h"

#define LAST_MS 10000 /* for the reaper to empty the trash; the next start goes on with it */
#define SWEEP_MS 5000 /* leftovers of a killed engine have this long to die */

struct arguments {
	int fd;
	bool system, keep, help, version;
	const char *socket, *group, *config, *state, *workspaces;
	uid_t peer_uid;
};

static const char usage[] =
	"usage: garret-engine --fd N [--peer-uid UID] [options]\n"
	"       garret-engine --system --socket PATH [--group NAME] [options]\n"
	"\n"
	"  --fd N            serve one peer on an inherited SEQPACKET socket, end with it\n"
	"  --peer-uid UID    the user that the peer will run as\n"
	"  --keep            start again when killed: N brings a socket for each time\n"
	"  --system          serve those that connect to --socket\n"
	"  --socket PATH     the socket (0660, root and --group)\n"
	"  --group NAME      the group that may connect\n"
	"  --state DIR       state directory\n"
	"  --workspaces DIR  workspace root\n"
	"  --config FILE     configuration (default " CONF_DEFAULT_PATH ")\n";

static bool parse_number(const char *text, uint64_t most, uint64_t *ret)
{
	return parse_u64(text, ret) && *ret <= most;
}

static bool parse_arguments(int argc, char **argv, struct arguments *a)
{
	enum {
		FD = 1,
		PEER_UID,
		KEEP,
		SYSTEM,
		SOCKET,
		GROUP,
		STATE,
		WORKSPACES,
		CONFIG,
		HELP,
		VERSION
	};
	static const struct option options[] = {
		{ "fd", required_argument, NULL, FD },
		{ "peer-uid", required_argument, NULL, PEER_UID },
		{ "keep", no_argument, NULL, KEEP },
		{ "system", no_argument, NULL, SYSTEM },
		{ "socket", required_argument, NULL, SOCKET },
		{ "group", required_argument, NULL, GROUP },
		{ "state", required_argument, NULL, STATE },
		{ "workspaces", required_argument, NULL, WORKSPACES },
		{ "config", required_argument, NULL, CONFIG },
		{ "help", no_argument, NULL, HELP },
		{ "version", no_argument, NULL, VERSION },
		{ NULL, 0, NULL, 0 },
	};
	uint64_t n;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		bool ok = true;

		switch (o) {
		case FD:
			ok = parse_number(optarg, 1 << 20, &n) && n > 2;
			a->fd = ok ? (int)n : -EBADF;
			break;
		case PEER_UID:
			ok = parse_number(optarg, UINT32_MAX - 1, &n);
			a->peer_uid = ok ? (uid_t)n : (uid_t)-1;
			break;
		case KEEP:
			a->keep = true;
			break;
		case SYSTEM:
			a->system = true;
			break;
		case SOCKET:
			a->socket = optarg;
			break;
		case GROUP:
			a->group = optarg;
			break;
		case STATE:
			a->state = optarg;
			break;
		case WORKSPACES:
			a->workspaces = optarg;
			break;
		case CONFIG:
			a->config = optarg;
			break;
		case HELP:
			a->help = true;
			break;
		case VERSION:
			a->version = true;
			break;
		default:
			return false;
		}
		if (!ok) {
			fprintf(stderr, "garret-engine: no good value: %s\n", optarg);
			return false;
		}
	}
	if (a->help || a->version)
		return true;
	if (optind < argc || a->system != (a->fd < 0) || a->system != (a->socket != NULL) ||
	    (a->system && a->keep)) {
		fprintf(stderr, "garret-engine: want --fd N, or --system --socket PATH\n");
		return false;
	}
	return true;
}

static int set_path(char **at, const char *value, struct garret_error *err)
{
	if (!value)
		return 0;
	if (value[0] != '/')
		return garret_fail(err, GARRET_INVALID, "%s is no absolute path", value);
	free(*at);
	*at = xstrdup(value);
	return 0;
}

static int configure(struct conf *c, const struct arguments *a, struct garret_error *err)
{
	int rc;

	conf_init(c);
	rc = conf_read(c, a->config ? a->config : CONF_DEFAULT_PATH, a->config != NULL, err);
	if (rc == 0)
		rc = set_path(&c->state_dir, a->state, err);
	if (rc == 0)
		rc = set_path(&c->workspace_root, a->workspaces, err);
#ifdef GARRET_TEST_SWITCHES
	c->no_filter =
		getenv("GARRET_TEST_NO_SECCOMP") && !strcmp(getenv("GARRET_TEST_NO_SECCOMP"), "1");
#endif
	return rc < 0 ? rc : conf_finish(c, err);
}

static int compile_filters(struct engine *e, struct garret_error *err)
{
	for (int kind = FILTER_NO_SUID; kind < FILTERS; kind++) {
		int rc = e->conf.no_filter ? 0 : filter_compile(kind, &e->filters[kind], err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static void end(struct engine *e, int status, void (*end_sessions)(struct engine *e))
{
	if (e->ending)
		return;
	e->ending = true;
	e->status = status;
	serve_stop(e);
	end_sessions(e);
	slots_drop(e);
	engine_check_end(e);
}

void engine_end_all(struct engine *e, int status)
{
	end(e, status, session_end_everything);
}

void engine_leave(struct engine *e, int status)
{
	end(e, status, session_leave_durable);
}

void engine_check_end(struct engine *e)
{
	if (e->ending && !e->n_sessions && !e->n_slots)
		loop_quit(e->loop, e->status);
}

void engine_keep_fds(const int *keep, unsigned n)
{
	for (int from = 3;;) {
		int next = INT_MAX;

		for (unsigned i = 0; i < n; i++)
			if (keep[i] >= from)
				next = MIN(next, keep[i]);
		if (next > from)
			(void)close_range((unsigned)from, (unsigned)next - 1, 0);
		if (next == INT_MAX)
			return;
		from = next + 1;
	}
}

/* SIGTERM is how a service is stopped to be started again: what is durable lives on. */
static void on_signal(void *ctx, int signo)
{
	if (signo == SIGTERM)
		engine_leave(ctx, 0);
	else
		engine_end_all(ctx, 0);
}

static int catch_signals(struct engine *e, struct garret_error *err)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		int rc = loop_signal(e->loop, signals[i], on_signal, e, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static bool is_session(void *ctx, const char *name)
{
	return session_in_slot(ctx, name);
}

static bool instance_dead(void *ctx, const char *instance)
{
	return store_instance_dead(ctx, instance);
}

/* Everything up to the first request, in the order in which later parts need earlier ones. */
static int engine_start(struct engine *e, const struct arguments *a, struct garret_error *err)
{
	char instance[17];
	int rc;

	/* Rights are asked of the kernel as the peer: whoever starts us has groups that it hasn't. */
	if (setgroups(0, NULL) < 0 && getgroups(0, NULL) != 0)
		return garret_fail_errno(err, "drop the groups");
	if ((rc = store_open(e, err)) < 0)
		return rc;
	disk_open(e);
	store_instance(e, instance);
	if ((rc = cgroups_open(&e->cg, e->conf.cgroup_parent, instance, err)) < 0)
		return rc;
	cgroups_tidy(&e->cg, instance_dead, e);
	if ((rc = compile_filters(e, err)) < 0 || (rc = loop_new(&e->loop, err)) < 0)
		return rc;
	slots_init(e);
	store_sweep(e, session_restore);
	if (cgroups_sweep(&e->cg, is_session, e, now_ms() + SWEEP_MS))
		log_warn("cgroups_left", "parent=%s", e->conf.cgroup_parent);
	if ((rc = catch_signals(e, err)) < 0 || (rc = nursery_adopt(e, err)) < 0 ||
	    (rc = reaper_start(e, err)) < 0 || (rc = nursery_start(e, err)) < 0)
		return rc;
	if (a->system)
		return serve_system(e, a->socket, a->group, err);
	e->private = true;
	return serve_private(e, a->fd, a->peer_uid, err);
}

static void engine_stop(struct engine *e)
{
	nursery_stop(e);
	reaper_stop(e);
	/*
	 * No session is left; what remains are our own, and each of them is ending.  Unless
	 * there are inits among our children that live on: another engine may be waiting.
	 */
	for (uint64_t end = now_ms() + (e->left ? 0 : LAST_MS);
	     waitpid(-1, NULL, WNOHANG) >= 0 && now_ms() < end;)
		(void)nanosleep(&(struct timespec){ .tv_nsec = 1000 * 1000 }, NULL);
	/* Of a slot that was given up: what hindered its removal may have passed. */
	if (e->loop && !e->left && cgroups_sweep(&e->cg, is_session, e, now_ms() + SWEEP_MS))
		log_warn("cgroups_left", "parent=%s", e->conf.cgroup_parent);
	/* What an engine left that was killed may have had members yet when we started. */
	if (e->loop)
		cgroups_tidy(&e->cg, instance_dead, e);
	cgroups_done(&e->cg);
	for (int i = 0; i < FILTERS; i++)
		filter_release(&e->filters[i]);
	free(e->indexes);
	e->loop = loop_free(e->loop);
	store_close(e);
	conf_done(&e->conf);
}

/* A session costs two or three descriptors. */
static void raise_nofile(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = l.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &l);
	}
}

static void engine_init(struct engine *e)
{
	*e = (struct engine){ .state_fd = -EBADF,
			      .sessions_fd = -EBADF,
			      .layers_fd = -EBADF,
			      .trash_fd = -EBADF,
			      .lock_fd = -EBADF,
			      .makers_fd = -EBADF,
			      .workspaces_fd = -EBADF,
			      .spares_fd = -EBADF,
			      .workspaces_trash_fd = -EBADF,
			      .ids_fd = -EBADF,
			      .zygote_sock = -EBADF,
			      .reaper_sock = -EBADF,
			      .listen_fd = -EBADF };
	e->zygote_io.fd = e->reaper_io.fd = e->listen_io.fd = -EBADF;
	list_init(&e->slots);
	list_init(&e->sessions);
	list_init(&e->peers);
	list_init(&e->orders);
	for (int h = 0; h < CG_HIERARCHIES; h++)
		e->cg.dir[h] = e->cg.above[h] = -EBADF;
}

int main(int argc, char **argv)
{
	struct arguments a = { .fd = -EBADF, .peer_uid = (uid_t)-1 };
	struct garret_error err = { 0 };
	struct engine e;
	int status = 1, level;

	if (argc == 2 && !strcmp(argv[1], "zygote"))
		return zygote_main(init_main, init_base_env);
	if (!parse_arguments(argc, argv, &a)) {
		fputs("try garret-engine --help\n", stderr);
		return 2;
	}
	if (a.help || a.version) {
		fputs(a.help ? usage : "garret-engine " GARRET_VERSION "\n", stdout);
		return 0;
	}
	if (geteuid() != 0) {
		fprintf(stderr, "garret-engine: only root can isolate sessions for now\n");
		return 1;
	}
	/* The CLI shows only what went wrong; the daemon passes its own level on. */
	level = getenv("GARRET_LOG_LEVEL") ? log_level_parse(getenv("GARRET_LOG_LEVEL")) : LOG_WARN;
	log_setup("garret-engine", level < 0 ? LOG_INFO : (enum log_level)level, false);
	(void)prctl(PR_SET_DUMPABLE, 0);
	(void)signal(SIGPIPE, SIG_IGN);
	raise_nofile();
	if (a.keep)
		a.fd = keeper_run(a.fd);
	engine_init(&e);
	if (configure(&e.conf, &a, &err) == 0 && engine_start(&e, &a, &err) == 0)
		status = loop_run(e.loop);
	else
		log_error("start_failed", "error=\"%s\"", err.msg);
	engine_stop(&e);
	return status;
}
