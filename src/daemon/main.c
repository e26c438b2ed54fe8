/*
 * garretd: reads the configuration, starts the engine while it is still root,
 * gives root up for good, and puts the parts together:
 *
 *	engine <-> provider -> service <- api <- clients
 *	                        ^ registry
 *
 * Serving begins when the engine has answered and the registry is read.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api.h"
#include "api/app_link.h"
#include "base/auto.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/text.h"
#include "base/time.h"
#include "core/service_new.h"
#include "daemon/place.h"
#include "daemon/state.h"
#include "provider/engine_client.h"
#include "provider/init_client.h"
#include "provider/native.h"
#include "registry/sqlite.h"

#define DRAIN_MS 10000
#define SWEEP_SECONDS 60 /* of the application layer, at the latest */
#define GIVEN_FIRST 3    /* sd_listen_fds(3) */
#define GIVEN_MAX 8

struct daemon {
	struct loop *loop;
	struct config config;
	struct state state;
	struct registry *registry;
	struct place place;
	struct service *service;
	struct api *api;
	pid_t engine_pid;
	int given[GIVEN_MAX]; /* listening sockets of a service manager */
	unsigned n_given;
	int runs_fd, events_fd;
	bool engine_ready, registry_ready, restoring, listening, stopping;
	bool keep; /* stopping: sessions go on, another daemon takes them over */
};

struct daemon_opts {
	bool check, version, help;
	const char *schema;
};

#define D(f, n, l, k, a, h) OPT(struct daemon_opts, f, n, l, k, a, h)
static const struct opt table[] = {
	D(check, "check", 0, OPT_FLAG, NULL, "check the configuration and exit"),
	D(schema, "schema", 0, OPT_STRING, "N",
	  "bring the database to version N of its tables and exit"),
	D(version, "version", 0, OPT_FLAG, NULL, "print the version"),
	D(help, "help", 'h', OPT_FLAG, NULL, "show this"),
	{ 0 },
};

/* sd_notify(3) without the library: one datagram. */
static void notify(const char *text)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	autoclose int fd = -EBADF;
	size_t n = path ? strlen(path) : 0;

	if (!n || n >= sizeof(sa.sun_path))
		return;
	memcpy(sa.sun_path, path, n);
	if (sa.sun_path[0] == '@')
		sa.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		(void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&sa,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
}

/* sd_listen_fds(3) without the library: they are ours, and nobody's whom we start. */
static int take_given(struct daemon *d, struct garret_error *err)
{
	const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
	uint64_t whose, many;

	if (!pid || !n || !parse_u64(pid, &whose) || whose != (uint64_t)getpid())
		return 0;
	if (!parse_u64(n, &many) || many > GIVEN_MAX)
		return garret_fail(err, GARRET_INVALID, "LISTEN_FDS: a number up to %d", GIVEN_MAX);
	for (unsigned i = 0; i < many; i++) {
		d->given[i] = GIVEN_FIRST + (int)i;
		if (fd_set_cloexec(d->given[i], true) < 0)
			return garret_fail_errno(err, "LISTEN_FDS: descriptor %d", d->given[i]);
	}
	d->n_given = (unsigned)many;
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
	return 0;
}

static void on_closed_all(void *ctx, const struct refusal *no)
{
	struct daemon *d = ctx;

	(void)no;
	loop_quit(d->loop, 0);
}

static void on_drained(void *ctx)
{
	struct daemon *d = ctx;

	if (d->keep)
		loop_quit(d->loop, 0);
	else
		service_shutdown(d->service, on_closed_all, d);
}

/*
 * SIGTERM is how a service is stopped to be started again (an upgrade): what is asked
 * already is answered for a while, and sessions go on.  SIGINT, a Ctrl-C, ends them all.
 */
static void on_stop(void *ctx, int signo)
{
	struct daemon *d = ctx;

	d->keep = signo == SIGTERM && (d->keep || !d->stopping);
	if (d->stopping)
		return;
	d->stopping = true;
	log_info("stopping", "signal=%d sessions=%s", signo, d->keep ? "kept" : "ended");
	notify("STOPPING=1");
	if (d->listening)
		api_drain(d->api, now_ms() + DRAIN_MS, on_drained, d);
	else
		loop_quit(d->loop, 0);
}

static bool is_loopback(const char *host)
{
	return !strncmp(host, "127.", 4) || !strcmp(host, "::1") || !strcmp(host, "localhost");
}

static void warn_about_exposure(const struct daemon *d)
{
	const char *token = d->config.token;

	if (is_loopback(d->config.host))
		return;
	log_warn("exposed", "%s is not loopback: put a proxy with TLS in front", d->config.host);
	if (token && strlen(token) < 32)
		log_warn("exposed", "SANDBOXD_TOKEN has %zu characters; use at least 32",
			 strlen(token));
}

/* It is started by the first request; or now, when an earlier one has left something to be swept. */
static void set_app(struct daemon *d)
{
	autofree char *program = program_beside("garret-app"),
		      *dir = xasprintf("%s/app", d->state.dir);
	const uint64_t sweep = MIN((uint64_t)d->config.cleanup_interval, (uint64_t)SWEEP_SECONDS);
	const struct app_link_config config = { .program = program,
						.dir = dir,
						.sweep_ms = sweep * 1000 };
	struct app_link *app = app_link_new(d->loop, &config);

	if (access(dir, F_OK) == 0)
		app_link_start(app);
	api_set_app(d->api, app);
}

static void serve(void *ctx)
{
	struct daemon *d = ctx;
	struct garret_error err = { 0 };

	if (d->stopping)
		return;
	service_set_ready(d->service, true);
	if (api_new(&d->api, d->loop, d->service, &err) < 0 ||
	    api_listen(d->api, d->given, d->n_given, &err) < 0 || drop_last_capability(&err) < 0) {
		log_error("start", "%s", err.msg);
		loop_quit(d->loop, 1);
		return;
	}
	set_app(d);
	d->listening = true;
	warn_about_exposure(d);
	if (d->state.token)
		log_info("token", "the service token is in %s/token%s", d->state.dir,
			 d->state.token_is_new ? " (made now)" : "");
	log_info("ready", "url=http://%s:%u%s%s", d->config.host, api_port(d->api),
		 d->config.socket ? " socket=" : "", d->config.socket ? d->config.socket : "");
	notify("READY=1");
}

/* First what earlier sessions are still there: whoever asks for one shall find it. */
static void serve_when_ready(struct daemon *d)
{
	if (!d->engine_ready || !d->registry_ready || d->restoring || d->stopping)
		return;
	d->restoring = true;
	service_restore(d->service, serve, d);
}

static void on_engine_away(void *ctx, const struct garret_error *err)
{
	struct daemon *d = ctx;

	log_error("engine", "%s; sessions go on, another one is looked for", err->msg);
	service_set_ready(d->service, false);
}

static void set_bounds(struct daemon *d, const struct engine_hello *h)
{
	const struct limit_bounds bounds = { .known = true,
					     .can = native_limits(h->limits),
					     .memory_bytes = h->max_memory_bytes,
					     .tmpfs_bytes = h->max_tmpfs_bytes,
					     .cpu_millis = h->max_cpu_millis,
					     .pids = h->max_pids };

	service_set_bounds(d->service, &bounds);
}

static void on_engine_ready(void *ctx, const struct engine_hello *hello)
{
	struct daemon *d = ctx;

	set_bounds(d, hello);
	if (d->engine_ready) {
		log_info("engine", "another one is there");
		service_set_ready(d->service, d->listening);
		return;
	}
	log_debug("engine", "cgroup=%u limits=%x networks=%x", hello->cgroup, hello->limits,
		  hello->networks);
	for (unsigned i = 0; i < d->config.n_runtimes; i++) {
		const char *mode = config_network(&d->config, &d->config.runtimes[i]);

		if (mode && !strcmp(mode, "host") && !(hello->networks & 1u << ENGINE_NET_HOST)) {
			log_error(
				"start",
				"runtime %s: network \"host\" is not allowed by the engine's configuration "
				"(networks = none host)",
				d->config.runtimes[i].alias);
			loop_quit(d->loop, 1);
			return;
		}
	}
	if (d->config.disk_limit && !(hello->limits & ENGINE_LIMIT_DISK)) {
		log_error("start", "GARRET_DISK_LIMIT: the engine can't limit the disk here "
				   "(garret doctor says what is missing)");
		loop_quit(d->loop, 1);
		return;
	}
	if (!hello->seccomp)
		log_warn("engine", "seccomp is OFF: this is a test build");
	d->engine_ready = true;
	serve_when_ready(d);
}

static void on_engine_lost(void *ctx, const struct garret_error *err)
{
	struct daemon *d = ctx;

	if (d->stopping)
		return;
	log_error("engine", "%s, for good; the next garretd finds the sessions", err->msg);
	loop_quit(d->loop, 1);
}

static void on_registry_ready(void *ctx, const struct garret_error *err)
{
	struct daemon *d = ctx;

	if (err) {
		log_error("start", "%s", err->msg);
		loop_quit(d->loop, 1);
		return;
	}
	d->registry_ready = true;
	serve_when_ready(d);
}

static int get_keeper(struct daemon *d, uid_t uid, int *ret_fd, struct garret_error *err)
{
	autofree char *program = NULL, *peer = xasprintf("%u", uid);
	const char *args[8] = { "--keep", "--peer-uid", peer };

	if (d->config.engine || d->config.docker)
		return 0;
	if (geteuid() != 0)
		return garret_fail(
			err, GARRET_DENIED,
			"making sessions needs root for now (rootless comes later): start garretd as root, "
			"it gives root up itself, or set GARRET_ENGINE to a running engine's socket");
	if (d->config.workspace_root) {
		args[3] = "--workspaces";
		args[4] = d->config.workspace_root;
	}
	program = program_beside("garret-engine");
	return engine_start(program, d->config.state_dir, args, ret_fd, &d->engine_pid, err);
}

/* Directories of ours beside the database. */
static int open_dirs(struct daemon *d, struct garret_error *err)
{
	autoclose int state = open(d->state.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (state < 0)
		return garret_fail_errno(err, "open %s", d->state.dir);
	d->runs_fd = open_dir_make(state, "runs", 0700, err);
	if (d->runs_fd < 0)
		return d->runs_fd;
	d->events_fd = open_dir_make(state, "events", 0700, err);
	return d->events_fd < 0 ? d->events_fd : 0;
}

static int start(struct daemon *d, struct garret_error *err)
{
	autofree char *db = NULL;
	uid_t uid = geteuid();
	gid_t gid = getegid();
	bool root = uid == 0;
	gid_t also = (gid_t)-1;
	int keeper_fd = -EBADF, rc;

	if (root)
		daemon_user(&uid, &gid);
	if ((rc = state_prepare(d->config.state_dir, uid, gid, &d->state, err)) < 0 ||
	    (root && d->config.docker && (rc = place_docker_group(&also, err)) < 0) ||
	    (rc = get_keeper(d, uid, &keeper_fd, err)) < 0 ||
	    (root && (rc = drop_privileges(uid, gid, also, err)) < 0) ||
	    (rc = state_load(&d->state, !d->config.token, err)) < 0) {
		fd_close(keeper_fd);
		return rc;
	}
	db = xasprintf("%s/garret.db", d->state.dir);
	rc = open_dirs(d, err);
	if (rc < 0) {
		fd_close(keeper_fd);
		return rc;
	}
	rc = sqlite_registry_open(d->loop, db, &d->registry, err);
	if (rc == 0 && d->config.docker) {
		rc = place_docker(d->loop, &d->config, &d->state, d->runs_fd, &d->place, err);
		d->engine_ready = rc == 0; /* who opens a session is told when it isn't there */
	} else if (rc == 0) {
		struct native_config native = { .loop = d->loop,
						.keeper_fd = keeper_fd,
						.engine_path = d->config.engine,
						.state_dir = d->state.dir,
						.ready = on_engine_ready,
						.away = on_engine_away,
						.lost = on_engine_lost,
						.ctx = d };

		memcpy(native.owner, d->state.owner, sizeof(native.owner));
		rc = place_native(&native, &d->place, err);
	} else {
		fd_close(keeper_fd);
	}
	if (rc < 0)
		return rc;
	{
		struct service_parts parts = { .loop = d->loop,
					       .config = &d->config,
					       .ops = d->place.ops,
					       .provider = d->place.provider,
					       .registry_ops = &sqlite_registry_ops,
					       .registry = d->registry,
					       .check_command = init_check_strings,
					       .boot = d->state.boot,
					       .events_dir = d->events_fd,
					       .runs_dir = d->runs_fd,
					       .token = d->config.token ? d->config.token
									: d->state.token };

		memcpy(parts.key, d->state.key, sizeof(parts.key));
		d->service = service_new(&parts, on_registry_ready, d);
	}
	return 0;
}

static void release(struct daemon *d)
{
	d->api = api_free(d->api);
	d->service = service_free(d->service);
	place_release(&d->place); /* a private engine ends now */
	if (d->registry)
		d->registry = sqlite_registry_ops.free(d->registry);
	if (d->engine_pid > 0)
		(void)waitpid(d->engine_pid, NULL, 0);
	fd_close(d->runs_fd);
	fd_close(d->events_fd);
	state_release(&d->state);
	config_release(&d->config);
	loop_free(d->loop);
}

/* A descriptor per client and two per session: the hard limit is ours to use. */
static void raise_nofile(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
		rl.rlim_cur = rl.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &rl);
	}
}

static int parse_options(int argc, char **argv, struct daemon_opts *opts)
{
	struct garret_error err = { 0 };
	autobuf struct strbuf help = STRBUF_INIT;
	int used = opt_parse(table, argc, argv, opts, &err);

	if (used >= 0 && argv[used])
		used = garret_fail(
			&err, GARRET_INVALID,
			"garretd takes no words; its settings are environment variables");
	if (used < 0) {
		(void)fprintf(stderr, "garretd: %s\n", err.msg);
		return 2;
	}
	if (opts->help) {
		opt_help(table, &help);
		(void)printf(
			"Usage: garretd [OPTIONS]\n\nSettings are environment variables: see garretd(8).\n\n%s",
			help.buf);
	}
	if (opts->version)
		(void)puts("garretd " GARRET_VERSION);
	return 0;
}

/* As the daemon's own user, with its lock: never beside one that runs. */
static int change_schema(struct daemon *d, const char *version, struct garret_error *err)
{
	autofree char *db = NULL;
	uid_t uid = geteuid();
	gid_t gid = getegid();
	bool root = uid == 0;
	uint64_t n;
	int rc;

	if (root)
		daemon_user(&uid, &gid);
	if (!parse_u64(version, &n) || n > INT_MAX)
		return garret_fail(err, GARRET_INVALID, "--schema: a number, not \"%.40s\"",
				   version);
	rc = state_prepare(d->config.state_dir, uid, gid, &d->state, err);
	if (rc == 0 && root)
		rc = drop_privileges(uid, gid, (gid_t)-1, err);
	if (rc < 0)
		return rc;
	db = xasprintf("%s/garret.db", d->state.dir);
	return sqlite_registry_migrate(db, (int)n, err);
}

int main(int argc, char **argv)
{
	struct daemon d = { .state.lock_fd = -EBADF, .runs_fd = -EBADF, .events_fd = -EBADF };
	struct daemon_opts opts = { 0 };
	struct garret_error err = { 0 };
	int status = parse_options(argc, argv, &opts), level;

	if (status || opts.help || opts.version)
		return status;
	if (config_from_env(&d.config, &err) < 0) {
		(void)fprintf(stderr, "garretd: %s\n", err.msg);
		return 1;
	}
	level = log_level_parse(d.config.log_level);
	if (level < 0) {
		(void)fprintf(
			stderr,
			"garretd: GARRET_LOG_LEVEL: one of debug info warn error, not \"%.40s\"\n",
			d.config.log_level);
		config_release(&d.config);
		return 1;
	}
	log_setup("garretd", (enum log_level)level, d.config.log_json);
	if (opts.check) {
		(void)puts("garretd: the configuration is good");
		config_release(&d.config);
		return 0;
	}
	if (opts.schema) {
		status = change_schema(&d, opts.schema, &err) < 0;
		if (status)
			log_error("schema", "%s", err.msg);
		release(&d);
		return status;
	}
	raise_nofile();
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error, no end */
	if (take_given(&d, &err) < 0 || loop_new(&d.loop, &err) < 0 ||
	    loop_signal(d.loop, SIGTERM, on_stop, &d, &err) < 0 ||
	    loop_signal(d.loop, SIGINT, on_stop, &d, &err) < 0 || start(&d, &err) < 0) {
		log_error("start", "%s", err.msg);
		status = 1;
	} else {
		status = loop_run(d.loop);
	}
	release(&d);
	log_info("stopped", "status=%d", status);
	return status;
}
