/*
 * Runs a command and every process that comes from it under ptrace, knows which part of garret
 * each of them is, and at one chosen system call makes that call fail or kills the caller.
 *
 *	inject REPORT ROLE CALLS N ACTION -- CMD...
 *
 * ROLE: cli daemon keeper engine zygote reaper helper init spawn ... (a count with ROLE all lists them).
 * CALLS: names of the table below with commas, or all.  N: the how-manieth of them in processes
 * of that role together; with a + behind it, in each of them separately.  ACTION: a number of
 * errno, or kill.  N = 0 only counts.  SIGTERM and SIGINT are passed on to CMD.
 *
 * The report, one line a fact: "count ROLE CALL NUMBER", "hit ROLE PID CALL NUMBER-OF-HITS",
 * "left ROLE PID" for what still lived 25 s after CMD ended (not looked at after a kill, nor of a
 * garretd, which may leave its sessions), "status WAIT-STATUS" of CMD.
 * strace could do the first half, but counts each process by itself and doesn't know which is
 * which, so a helper that comes third could not be met.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/ptrace.h>

#define LEFT_SECONDS 25
#define PROCESSES 4096
#define ROLES 12
#define NUMBERS 512

static const struct {
	const char *name;
	int number;
} calls[] = {
#define C(n)                \
	{                   \
#n, SYS_##n \
	}
	C(openat),        C(openat2),
	C(mkdirat),       C(mkdir),
	C(renameat2),     C(renameat),
	C(rename),        C(unlinkat),
	C(unlink),        C(rmdir),
	C(clone),         C(clone3),
	C(fork),          C(vfork),
	C(open_tree),     C(move_mount),
	C(fsopen),        C(fsconfig),
	C(fsmount),       C(mount_setattr),
	C(pivot_root),    C(umount2),
	C(mount),         C(setns),
	C(unshare),       C(setresuid),
	C(setresgid),     C(setgroups),
	C(capset),        C(prctl),
	C(seccomp),       C(socket),
	C(socketpair),    C(sendmsg),
	C(recvmsg),       C(accept4),
	C(bind),          C(listen),
	C(connect),       C(epoll_ctl),
	C(epoll_create1), C(epoll_wait),
	C(signalfd4),     C(timerfd_create),
	C(pidfd_open),    C(pidfd_send_signal),
	C(write),         C(pwrite64),
	C(read),          C(pread64),
	C(splice),        C(pipe2),
	C(memfd_create),  C(mmap),
	C(brk),           C(mremap),
	C(execve),        C(fcntl),
	C(dup2),          C(fchownat),
	C(fchown),        C(fchmodat),
	C(ftruncate),     C(fdatasync),
	C(fsync),         C(keyctl),
	C(setrlimit),     C(prlimit64),
	C(symlinkat),     C(mknodat),
	C(getrandom),     C(poll),
	C(fstat),         C(newfstatat),
	C(sendto),        C(recvfrom),
	C(writev),        C(getdents64),
	C(access),        C(faccessat),
	C(faccessat2),    C(sethostname),
	C(setsid),        C(kill),
	C(wait4),         C(waitid),
	C(flock),         C(readlink),
	C(readlinkat),
#undef C
};

enum { UNKNOWN = -1 };
static char role_names[ROLES][24];
static int n_roles;

struct process {
	pid_t pid;
	int role;
	bool waiting; /* stopped at its birth until its parent's event tells the role */
	bool hit, inside;
	unsigned long seen; /* matching calls so far */
};

static struct process processes[PROCESSES];
static int n_processes;
static bool wanted[NUMBERS], all_calls, each;
static unsigned long counts[ROLES][NUMBERS], matching, when, hits;
static int target = UNKNOWN, hit_call = -1, action;
static pid_t hit_pid, main_pid;
static const char *report_path;
static bool rest_lives; /* what CMD leaves isn't for us to end */

static int role(const char *name)
{
	for (int i = 0; i < n_roles; i++)
		if (!strcmp(role_names[i], name))
			return i;
	if (n_roles == ROLES)
		abort();
	(void)snprintf(role_names[n_roles], sizeof(role_names[0]), "%s", name);
	return n_roles++;
}

static struct process *find(pid_t pid)
{
	for (int i = 0; i < n_processes; i++)
		if (processes[i].pid == pid)
			return &processes[i];
	return NULL;
}

static struct process *add(pid_t pid)
{
	struct process *p = find(pid);

	if (p)
		return p;
	if (n_processes == PROCESSES)
		abort();
	p = &processes[n_processes++];
	*p = (struct process){ .pid = pid, .role = UNKNOWN };
	return p;
}

static void forget(pid_t pid)
{
	struct process *p = find(pid);

	if (p)
		*p = processes[--n_processes];
}

/* What a fork of a process is until it runs another program. */
static int child_role(int parent)
{
	static const struct {
		const char *parent, *child;
	} table[] = {
		{ "cli", "cli-fork" },    { "daemon", "daemon-fork" }, { "engine", "reaper" },
		{ "zygote", "helper" },   { "helper", "init" },        { "init", "spawn" },
		{ "command", "command" }, { "keeper", "engine" },
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(role_names[parent], table[i].parent))
			return role(table[i].child);
	return parent;
}

static int exec_role(pid_t pid)
{
	char path[64], exe[PATH_MAX], args[4096] = "";
	ssize_t n, n_args = 0;
	const char *base;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = '\0';
	base = strrchr(exe, '/') ? strrchr(exe, '/') + 1 : exe;
	(void)snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n_args = read(fd, args, sizeof(args) - 1);
		close(fd);
	}
	if (!strcmp(base, "garret-engine")) {
		if (!strcmp(args + strlen(args) + 1, "zygote"))
			return role("zygote");
		return role(n_args > 0 && memmem(args, (size_t)n_args, "--keep", sizeof("--keep"))
				    ? "keeper"
				    : "engine");
	}
	if (!strcmp(base, "garretd"))
		return role("daemon");
	if (!strcmp(base, "garret"))
		return role("cli");
	return role(pid == main_pid ? "main" : "command");
}

static bool is_target(const struct process *p)
{
	return target == UNKNOWN || p->role == target;
}

static void go_on(struct process *p, int sig)
{
	assert(p);
	/* In the middle of a call to its end, whoever it is by now. */
	bool calls_too = p->inside || p->role == UNKNOWN || !when || is_target(p);

	(void)ptrace(calls_too ? PTRACE_SYSCALL : PTRACE_CONT, p->pid, NULL, (void *)(long)sig);
}

static void fail_call(const struct process *p)
{
#ifdef __x86_64__
	struct user_regs_struct r;

	if (ptrace(PTRACE_GETREGS, p->pid, NULL, &r) == 0) {
		if (p->inside)
			r.orig_rax = (unsigned long long)-1;
		else
			r.rax = (unsigned long long)-(long long)action;
		(void)ptrace(PTRACE_SETREGS, p->pid, NULL, &r);
	}
#endif
}

static const char *call_name(int number)
{
	static char text[24];

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (calls[i].number == number)
			return calls[i].name;
	(void)snprintf(text, sizeof(text), "%d", number);
	return text;
}

static void report(const char *path, int status)
{
	FILE *f = fopen(path, "we");

	if (!f)
		return;
	for (int r = 0; r < n_roles; r++)
		for (int i = 0; i < NUMBERS; i++)
			if (counts[r][i])
				fprintf(f, "count %s %s %lu\n", role_names[r], call_name(i),
					counts[r][i]);
	if (hits)
		fprintf(f, "hit %s %d %s %lu\n", role_names[target], hit_pid, call_name(hit_call),
			hits);
	for (int i = 0; i < n_processes && !rest_lives; i++)
		fprintf(f, "left %s %d\n",
			processes[i].role == UNKNOWN ? "unknown" : role_names[processes[i].role],
			processes[i].pid);
	fprintf(f, "status %d\n", status);
	fclose(f);
}

/* At the beginning or the end of a call. */
static void on_call(struct process *p)
{
	struct ptrace_syscall_info info;
	int number;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, p->pid, (void *)sizeof(info), &info) <= 0)
		return;
	if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
		p->inside = false;
		if (p->hit)
			fail_call(p);
		p->hit = false;
		return;
	}
	if (info.op != PTRACE_SYSCALL_INFO_ENTRY)
		return;
	number = (int)info.entry.nr;
	p->inside = true;
	/* Only an addition needs memory; no program has an answer to a refusal of the others. */
	if (number == SYS_epoll_ctl && info.entry.args[1] != EPOLL_CTL_ADD)
		return;
	if (number < 0 || number >= NUMBERS || p->role == UNKNOWN || !is_target(p) ||
	    (!all_calls && !wanted[number]))
		return;
	counts[p->role][number]++;
	matching++;
	p->seen++;
	if (!when || (each ? p->seen : matching) != when)
		return;
	hits++;
	hit_pid = p->pid;
	hit_call = number;
	report(report_path, -1); /* whoever waits for us in vain wants to know */
	if (action < 0) {
		(void)kill(p->pid, SIGKILL);
		return;
	}
	p->hit = true;
	fail_call(p);
}

static bool same_process(pid_t a, pid_t b)
{
	char path[96];

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d", a, b);
	return access(path, F_OK) == 0;
}

static void on_birth(struct process *parent)
{
	int its = parent->role;
	unsigned long pid = 0;
	struct process *child;

	if (ptrace(PTRACE_GETEVENTMSG, parent->pid, NULL, &pid) < 0 || !pid)
		return;
	child = add((pid_t)pid);
	if (its != UNKNOWN && child->role == UNKNOWN)
		child->role = same_process(parent->pid, child->pid) ? its : child_role(its);
	if (child->waiting) {
		child->waiting = false;
		go_on(child, 0);
	}
}

static void on_stop(struct process *p, int status)
{
	int sig = WSTOPSIG(status), event = status >> 16;

	switch (event) {
	case PTRACE_EVENT_FORK:
	case PTRACE_EVENT_VFORK:
	case PTRACE_EVENT_CLONE: {
		pid_t pid = p->pid;

		on_birth(p);
		p = find(pid);
		go_on(p, 0);
		return;
	}
	case PTRACE_EVENT_EXEC:
		p->role = exec_role(p->pid);
		p->seen = 0;
		go_on(p, 0);
		return;
	case PTRACE_EVENT_STOP:
		if (sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU) {
			(void)ptrace(PTRACE_LISTEN, p->pid, NULL, NULL);
			return;
		}
		if (p->role == UNKNOWN)
			p->waiting = true; /* its parent's event comes */
		else
			go_on(p, 0);
		return;
	default:
		break;
	}
	if (sig == (SIGTRAP | 0x80)) {
		on_call(p);
		go_on(p, 0);
	} else {
		go_on(p, event ? 0 : sig);
	}
}

static pid_t begin(char **argv)
{
	int gate[2];
	pid_t pid;

	if (pipe(gate) < 0 || (pid = fork()) < 0)
		return -1;
	if (pid == 0) {
		char c;

		close(gate[1]);
		(void)!read(gate[0], &c, 1);
		close(gate[0]);
		execvp(argv[0], argv);
		_exit(127);
	}
	/* The rest is the next start's then, so it has to live on without us. */
	if (ptrace(PTRACE_SEIZE, pid, NULL,
		   (void *)(long)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
				  PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC |
				  (rest_lives ? 0 : PTRACE_O_EXITKILL))) < 0)
		return -1;
	close(gate[0]);
	close(gate[1]);
	return pid;
}

static void on_term(int signo)
{
	if (main_pid > 0)
		(void)kill(main_pid, signo);
}

static volatile sig_atomic_t late;

static void on_alarm(int signo)
{
	(void)signo;
	late = 1;
}

static int parse(char **argv)
{
	char *list = argv[3], *save = NULL;

	if (strcmp(argv[2], "all") != 0)
		target = role(argv[2]);
	all_calls = !strcmp(list, "all");
	for (char *name = all_calls ? NULL : strtok_r(list, ",", &save); name;
	     name = strtok_r(NULL, ",", &save)) {
		size_t i = 0;

		while (i < sizeof(calls) / sizeof(calls[0]) && strcmp(calls[i].name, name) != 0)
			i++;
		if (i == sizeof(calls) / sizeof(calls[0])) {
			fprintf(stderr, "inject: no call %s in the table\n", name);
			return -1;
		}
		wanted[calls[i].number] = true;
	}
	report_path = argv[1];
	when = strtoul(argv[4], NULL, 10);
	each = strchr(argv[4], '+') != NULL;
	action = !strcmp(argv[5], "kill") ? -1 : atoi(argv[5]);
	return 0;
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_term };
	int main_status = -1;

#ifndef __x86_64__
	fputs("inject: knows the registers of x86-64 only\n", stderr);
	return 77;
#endif
	if (argc < 8 || strcmp(argv[6], "--") != 0 || parse(argv) < 0) {
		fputs("usage: inject REPORT ROLE CALLS N ACTION -- CMD...\n", stderr);
		return 2;
	}
	(void)sigaction(SIGTERM, &sa, NULL);
	(void)sigaction(SIGINT, &sa, NULL);
	sa.sa_handler = on_alarm;
	(void)sigaction(SIGALRM, &sa, NULL);
	rest_lives = action < 0 ||
		     !strcmp(strrchr(argv[7], '/') ? strrchr(argv[7], '/') : "", "/garretd");
	main_pid = begin(argv + 7);
	/* Copies of CMD's sockets in here would hide the end of their owners. */
	(void)close_range(3, ~0u, 0);
	if (main_pid < 0) {
		perror("inject: begin");
		return 2;
	}
	add(main_pid)->role = role("main");
	while (n_processes && !late) {
		int status;
		pid_t pid = waitpid(-1, &status, __WALL);
		struct process *p;

		if (pid < 0 && errno == EINTR)
			continue;
		if (pid < 0)
			break;
		if (!WIFSTOPPED(status)) {
			forget(pid);
			if (pid == main_pid) {
				main_status = status;
				(void)alarm(LEFT_SECONDS);
				late = rest_lives;
			}
			continue;
		}
		p = add(pid);
		on_stop(p, status);
	}
	report(report_path, main_status);
	/* EXITKILL ends what is left. */
	return WIFEXITED(main_status) ? WEXITSTATUS(main_status) : 128 + WTERMSIG(main_status);
}
