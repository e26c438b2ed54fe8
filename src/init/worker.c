#include "init/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "io/msg.h"

#define TIMEOUT_MS 60000
#define PEER_MS 100
#define BATCH_BYTES (32 * 1024) /* a frame of entries is sent when it has so much */

static const struct {
	worker_op *fn;
	bool body; /* BODY frames follow the request */
	bool to;   /* names a second path */
} table[FILE_OPS] = {
	[FILE_STAT] = { op_stat, false, false },
	[FILE_LIST] = { op_list, false, false },
	[FILE_WALK] = { op_walk, false, false },
	[FILE_READ] = { op_read, false, false },
	[FILE_WRITE] = { op_write, true, false },
	[FILE_MKDIR] = { op_mkdir, false, false },
	[FILE_REMOVE] = { op_remove, false, false },
	[FILE_RENAME] = { op_rename, false, true },
	[FILE_COPY] = { op_copy, false, true },
	[FILE_CHMOD] = { op_chmod, false, false },
	[FILE_REALPATH] = { op_realpath, false, false },
	[FILE_DIGEST] = { op_digest, false, false },
	[FILE_TEXT] = { op_text, false, false },
	[FILE_GLOB] = { op_glob, false, false },
	[FILE_GREP] = { op_grep, false, false },
	[FILE_EDIT] = { op_edit, true, false },
	[FILE_TAR_OUT] = { op_tar_out, false, false },
	[FILE_TAR_IN] = { op_tar_in, true, false },
};

static uint8_t rx[INIT_FRAME_MAX], tx[INIT_FRAME_MAX];

/* garretd is gone, or gave the request up: leave nothing half made. */
static void quit(struct worker *w) __attribute__((noreturn));

static void quit(struct worker *w)
{
	if (w->temp_name[0])
		(void)unlinkat(w->temp_dir, w->temp_name, 0);
	worker_undo_append(w);
	_exit(0);
}

void worker_undo_append(struct worker *w)
{
	struct stat st;

	if (w->undo_fd < 0)
		return;
	/* A write that failed may have left less than it was given, never more. */
	if (fstat(w->undo_fd, &st) < 0 || st.st_size > w->undo_to + FILE_RING ||
	    ftruncate(w->undo_fd, w->undo_from) < 0)
		w->end.truncated = true; /* part of it stays: the answer says so */
	w->undo_fd = -EBADF;
}

/* ---- frames ---- */

static void send_frame(struct worker *w, struct put *p)
{
	const uint64_t before = now_ms();
	uint32_t n = init_end(p);

	if (!n || msg_send(w->sock, p->buf, n, NULL, 0, NULL) < 0)
		quit(w);
	w->due_ms += now_ms() - before; /* the time of a slow client isn't ours */
}

static void begin(struct put *p, uint16_t type)
{
	init_begin(p, tx, type, 0);
}

static void flush_batch(struct worker *w)
{
	if (!w->batch.buf)
		return;
	send_frame(w, &w->batch);
	w->batch.buf = NULL;
}

void worker_info(struct worker *w, const struct file_info *info)
{
	struct put p;

	flush_batch(w);
	begin(&p, FILE_INFO);
	file_put_info(&p, info);
	send_frame(w, &p);
}

/* Room for one more of that kind in the frame under way, which has memory of its own. */
static struct put *batch(struct worker *w, uint16_t type)
{
	static uint8_t frame[INIT_FRAME_MAX];

	if (w->batch.buf && (w->batch_type != type || w->batch.len > BATCH_BYTES))
		flush_batch(w);
	if (!w->batch.buf) {
		init_begin(&w->batch, frame, type, 0);
		w->batch_type = type;
	}
	return &w->batch;
}

void worker_entry(struct worker *w, const struct file_info *info)
{
	file_put_info(batch(w, FILE_ENTRIES), info);
}

void worker_match(struct worker *w, const struct file_match *m)
{
	file_put_match(batch(w, FILE_MATCHES), m);
}

void worker_data(struct worker *w, const void *data, size_t n)
{
	const uint8_t *at = data;

	flush_batch(w);
	while (n) {
		size_t now = MIN(n, (size_t)FILE_DATA_MAX);
		struct put p;

		begin(&p, FILE_DATA);
		put_bytes(&p, at, now);
		send_frame(w, &p);
		at += now;
		n -= now;
	}
}

/* The next frame in rx; its type.  Anything that isn't a frame is the end of us. */
static uint16_t next_frame(struct worker *w, struct get *g, struct msg_fds *fds)
{
	ssize_t n = msg_recv(w->sock, rx, sizeof(rx), fds, NULL);
	struct init_header h;

	if (n <= 0 || !init_parse(g, rx, (size_t)n, &h))
		quit(w);
	return h.type;
}

/* What the last call gave out is used: the ring has room for more. */
static void take_given(struct worker *w)
{
	struct put p;

	w->ring_tail += w->ring_given;
	w->ring_given = 0;
	if (w->ring_tail - w->ring_told < FILE_RING_STEP && w->ring_tail < w->ring_head)
		return;
	if (w->ring_told == w->ring_tail)
		return;
	w->ring_told = w->ring_tail;
	init_begin(&p, tx, FILE_TAKEN, 0);
	put_u64(&p, w->ring_tail);
	send_frame(w, &p);
}

static size_t give_ring(struct worker *w, const void **ret)
{
	const size_t at = w->ring_tail % FILE_RING;
	size_t n = MIN((size_t)(w->ring_head - w->ring_tail), FILE_RING - at);

	if (!w->large_pieces)
		n = MIN(n, (size_t)FILE_DATA_MAX);
	*ret = w->ring + at;
	w->ring_given = n;
	return n;
}

/* Another ring than the last body's: from here on it counts from 0. */
static void map_ring(struct worker *w, struct msg_fds *fds)
{
	int fd = msg_fds_take(fds);

	if (w->ring)
		(void)munmap(w->ring, FILE_RING);
	w->ring = fd < 0 ? MAP_FAILED : mmap(NULL, FILE_RING, PROT_READ, MAP_SHARED, fd, 0);
	fd_close(fd);
	if (w->ring == MAP_FAILED)
		quit(w);
	w->ring_head = w->ring_tail = w->ring_told = w->ring_given = 0;
}

static void fill_ring(struct worker *w, struct get *g)
{
	uint64_t head = get_u64(g);

	if (!get_done(g) || !w->ring || head < w->ring_head || head - w->ring_tail > FILE_RING)
		quit(w);
	w->ring_head = head;
}

size_t worker_body(struct worker *w, const void **ret)
{
	*ret = "";
	take_given(w);
	while (!w->body_done) {
		struct msg_fds fds;
		struct get g;
		size_t n = 0;
		uint16_t type;

		if (w->ring_tail < w->ring_head)
			return give_ring(w, ret);
		type = next_frame(w, &g, &fds);
		if (type == FILE_SHARED)
			map_ring(w, &fds);
		msg_fds_close(&fds);
		if (type == FILE_SHARED)
			continue;
		if (type == FILE_BODY_AT) {
			fill_ring(w, &g);
			continue;
		}
		if (type == FILE_BODY)
			*ret = get_rest(&g, &n);
		else if (type != FILE_BODY_END)
			quit(w);
		w->body_done = !n;
		return n;
	}
	return 0;
}

int worker_pipe(struct worker *w)
{
	struct msg_fds fds;
	struct get g;
	uint16_t type = next_frame(w, &g, &fds);
	int fd = type == FILE_PIPE ? msg_fds_take(&fds) : -EBADF;

	msg_fds_close(&fds);
	if (type != FILE_BODY_END && fd < 0)
		quit(w);
	return fd;
}

/* A search that finds nothing says nothing: whether somebody still waits has to be asked. */
static void check_peer(struct worker *w, uint64_t now)
{
	char byte;

	if (now - w->peer_ms < PEER_MS)
		return;
	w->peer_ms = now;
	if (recv(w->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		quit(w);
}

int worker_check_time(struct worker *w, struct garret_error *err)
{
	const uint64_t now = now_ms();

	check_peer(w, now);
	if (now < w->due_ms)
		return 0;
	return garret_fail(err, GARRET_TIMEOUT, "the file operation took longer than it may");
}

static void send_end(struct worker *w, int rc, const struct garret_error *err)
{
	struct file_end *e = &w->end;
	struct put p;

	flush_batch(w);
	if (rc < 0) {
		e->code = (uint32_t)err->code;
		e->sys = (uint32_t)err->sys;
		e->msg = err->msg;
	}
	e->path = w->end_path.buf;
	begin(&p, FILE_END);
	file_put_end(&p, e);
	send_frame(w, &p);
	e->msg = NULL; /* it was err's */
}

/* ---- requests ---- */

/* A slash at the end says nothing here: the published routes never saw one. */
static void trim_slashes(const char *path)
{
	char *own = (char *)(uintptr_t)path; /* in w->request */
	size_t n = strlen(own);

	while (n > 1 && own[n - 1] == '/')
		own[--n] = '\0';
}

static int check_path(const struct file_request *rq, const char *path, struct garret_error *err)
{
	trim_slashes(path);
	if (rq->flags & FILE_RELATIVE)
		return *path == '/' ? garret_fail(err, GARRET_INVALID, "an absolute path") : 0;
	if (!*path)
		return garret_fail(err, GARRET_INVALID, "the path is empty");
	if (*path != '/')
		return garret_fail(err, GARRET_INVALID, "the path is relative: %s", path);
	return 0;
}

static int carry_out(struct worker *w, struct garret_error *err)
{
	const struct file_request *rq = &w->rq;
	int rc = check_path(rq, rq->path, err);

	if (rc == 0 && table[rq->op].to)
		rc = check_path(rq, rq->to, err);
	w->outside = false;
	if (rc == 0 && rq->flags & (FILE_RELATIVE | FILE_CONFINED) && w->root_fd < 0) {
		w->root_fd = open(w->p->work_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (w->root_fd < 0)
			rc = garret_fail_errno(err, "open the work directory");
	}
	if (rc == 0)
		rc = table[rq->op].fn(w, err);
	if (rc < 0 && w->outside)
		rc = garret_fail(err, GARRET_OUTSIDE, "%s: outside the working directory",
				 rq->path);
	return rc;
}

static void serve(struct worker *w)
{
	struct garret_error err = { 0 };
	const void *rest;
	struct msg_fds fds;
	struct get g;
	int rc;

	if (next_frame(w, &g, &fds) != FILE_REQUEST)
		quit(w);
	msg_fds_close(&fds);
	/* The strings must outlive the body's frames. */
	w->request = xmemdup(rx, g.len);
	g.buf = w->request;
	if (!file_get_request(&g, &w->rq))
		quit(w);
	w->end = (struct file_end){ 0 };
	strbuf_reset(&w->end_path);
	w->body_done = !table[w->rq.op].body;
	w->large_pieces = false;
	w->ring_head = w->ring_tail = w->ring_told = w->ring_given = 0;
	w->due_ms = now_ms() + (w->rq.timeout_ms ? w->rq.timeout_ms : TIMEOUT_MS);
	if (table[w->rq.op].fn)
		rc = carry_out(w, &err);
	else
		rc = garret_fail(&err, GARRET_UNSUPPORTED, "this init can't do that");
	send_end(w, rc, &err);
	while (!w->body_done)
		(void)worker_body(w, &rest);
	free(w->request);
}

/* ---- becoming a worker ---- */

/*
 * What a worker never needs, whatever a file makes it do.  Init's filter allows
 * it because init and its runs need it.
 */
static void add_filter(void)
{
	static const uint32_t never[] = { SYS_execve, SYS_execveat, SYS_clone,
					  SYS_clone3, SYS_socket,   SYS_ptrace,
					  SYS_kill,   SYS_tkill,    SYS_pidfd_send_signal,
#ifdef SYS_fork
					  SYS_fork,   SYS_vfork
#endif
	};
	struct sock_filter code[ARRAY_SIZE(never) + 3];
	size_t n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						 offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, never[i],
							 (uint8_t)(ARRAY_SIZE(never) - i), 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	(void)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0,
		      &(struct sock_fprog){ (unsigned short)n, code });
}

static void drop_privileges(const struct init_params *p)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	/* Without CAP_SETGID there is nothing to give up that init itself could not use. */
	if (syscall(SYS_setgroups, 0, NULL) < 0 && errno != EPERM)
		_exit(1);
	if (syscall(SYS_setresgid, p->run_gid, p->run_gid, p->run_gid) < 0 ||
	    syscall(SYS_setresuid, p->run_uid, p->run_uid, p->run_uid) < 0)
		_exit(1);
	/* No exec follows that would take them away. */
	if (syscall(SYS_capset, &head, none) < 0)
		_exit(1);
	(void)prctl(PR_SET_DUMPABLE, 0); /* the change of user may have set it */
}

static void set_process(void)
{
	const struct rlimit no_core = { 0, 0 };
	sigset_t none;

	(void)setsid();
	(void)prctl(PR_SET_NAME, "garret-files");
	(void)setrlimit(RLIMIT_CORE, &no_core);
	(void)umask(022);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error like others */
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* When memory runs out, workers go before init, as runs do. */
static void raise_oom(void)
{
	autoclose int fd = -EBADF;

	/* Only of a process that may be looked into is the file its own; no run has our user yet. */
	(void)prctl(PR_SET_DUMPABLE, 1);
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	(void)prctl(PR_SET_DUMPABLE, 0);
	if (fd >= 0)
		(void)write_full(fd, "500", 3);
}

/* The socket becomes descriptor 3, null stays where it is, the rest is init's. */
static int keep_socket(int sock)
{
	if (sock != 3 && dup3(sock, 3, O_CLOEXEC) < 0)
		_exit(1);
	(void)close_range(4, ~0u, 0);
	return 3;
}

void worker_main(const struct init_params *p, int sock)
{
	static struct worker w;

	set_process();
	raise_oom();
	w.p = p;
	w.sock = keep_socket(sock);
	w.root_fd = w.temp_dir = w.undo_fd = -EBADF;
	strbuf_init(&w.end_path);
	drop_privileges(p);
	add_filter();
	for (;;)
		serve(&w);
}
