"""The thread pool, as LLVM IR: a compiled model brings its own, and needs no library but C's.

    ptr  intarsia_pool_create(i64 threads)   threads - 1 workers (fewer if the system refuses); null: no room
    void intarsia_pool_destroy(ptr pool)     ends and joins the workers; no job may run; null is allowed
    void intarsia_parallel_for(ptr ctx, ptr fn, ptr env, i64 n)
                                             fn(env, i) for each i in 0 … n-1, once each, in any order, on any
                                             thread; returns when all are done. ctx's first field is the pool

A job runs on the calling thread alone if ctx or its pool is null, the pool has no workers, n is 1, or the
pool is busy: with another thread's job, or with the one that makes this nested call.

How it works. Caller and workers take indices by `atomicrmw add` on one 64-bit ticket, epoch << 32 | next
index. The caller waits for indices that somebody has taken, never for a worker that has not begun. Opening
a job: close the ticket under a new epoch (its index beyond every limit), write fn, env, limit and done = 0,
then open it at index 0. A taker of (e, i) runs i if i is below the limit and the ticket still says epoch e:
if it does, the limit it has read belongs to e, since the ticket was closed under the next epoch before the
limit changed; if i is really below e's limit, the job cannot end, nor the epoch change, before i is done.
So nothing runs twice and nothing is lost.

Workers spin for some tens of microseconds after the last job, then sleep on a futex; the caller makes the
system call that wakes them only if one sleeps. A worker counts itself as a sleeper before it looks at the
ticket for the last time, and the caller opens the ticket before it looks at the count, so one of the two
sees the other. Where there is no futex, workers yield the processor between looks instead of sleeping.

Workers block all signals (Linux), so that handlers run on the program's own threads. After `fork` the child
has no workers: jobs run on the calling thread, right but alone, and `destroy` there frees memory only. A
child that wants threads makes a pool of its own.
"""

from __future__ import annotations

_LINE = 64  # bytes between fields that different threads write
# offsets of the fields; the ticket is the first
_FN, _ENV, _LIMIT = 64, 72, 80
_DONE = 128
_WAKE, _SLEEPERS, _STOP = 192, 196, 200
_BUSY = 256
_WORKERS, _OWNER, _THREADS = 320, 328, 336  # _THREADS: pthread_t of each worker
_CLOSED = (
    1 << 31
)  # an index beyond every limit, far enough from 2^32 that failing takers cannot reach the epoch
_MOST_WORKERS = 1023
_STACK = 8 << 20  # bytes, as a main thread has

_FUTEX = {"x86_64": 202, "aarch64": 98, "arm64": 98, "riscv64": 98}  # numbers of the system call, on Linux
_PAUSE = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()", 1500),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)", 12000),
    "arm64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)", 12000),
}


def pool_ir(triple: str | None = None) -> str:
    """The pool's module, as IR text, for a target triple (default: the machine we run on)."""
    if triple is None:
        import llvmlite.binding as llvm

        triple = str(llvm.get_process_triple())
    machine, linux = triple.split("-")[0], "linux" in triple
    pause, declaration, spins = _PAUSE.get(machine, ('fence syncscope("singlethread") seq_cst', "", 12000))
    futex = _FUTEX.get(machine) if linux else None
    parts = [
        _HEADER.format(pause_declaration=declaration),
        _CREATE.format(block=_BLOCK_SIGNALS if linux else "", restore=_RESTORE_SIGNALS if linux else ""),
        _DESTROY,
        _WORKER.format(spins=spins, pause=pause),
        _WORK,
        _PARALLEL_FOR.format(spins=spins, pause=pause),
        _SLEEP_FUTEX.format(number=futex) if futex is not None else _SLEEP_YIELD,
    ]
    return "\n".join(parts)


def _at(name: str, offset: int) -> str:
    """An instruction: the address of a field."""
    return f"%{name} = getelementptr i8, ptr %pool, i64 {offset}"


_HEADER = """\
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_yield()
declare i32 @getpid()
declare i64 @syscall(i64, ...)
{pause_declaration}
"""

_BLOCK_SIGNALS = """\
  call i32 @sigfillset(ptr %all)
  call i32 @pthread_sigmask(i32 2, ptr %all, ptr %before)"""
_RESTORE_SIGNALS = """\
  call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)"""

_CREATE = f"""
define ptr @intarsia_pool_create(i64 %threads) {{{{
entry:
  %attributes = alloca [128 x i8], align 16
  %all = alloca [128 x i8], align 16
  %before = alloca [128 x i8], align 16
  %less = sub i64 %threads, 1
  %some = icmp sgt i64 %less, 0
  %positive = select i1 %some, i64 %less, i64 0
  %few = icmp slt i64 %positive, {_MOST_WORKERS}
  %workers = select i1 %few, i64 %positive, i64 {_MOST_WORKERS}
  %list = mul i64 %workers, 8
  %bytes = add i64 %list, {_THREADS + _LINE - 1}
  %size = and i64 %bytes, -{_LINE}
  %pool = call ptr @aligned_alloc(i64 {_LINE}, i64 %size)
  %failed = icmp eq ptr %pool, null
  br i1 %failed, label %nothing, label %fill
nothing:
  ret ptr null
fill:
  call void @llvm.memset.p0.i64(ptr %pool, i8 0, i64 %size, i1 false)
  store i64 {_CLOSED}, ptr %pool, align 8
  {_at("owner", _OWNER)}
  %me = call i32 @getpid()
  store i32 %me, ptr %owner, align 4
  {_at("count", _WORKERS)}
  call i32 @pthread_attr_init(ptr %attributes)
  call i32 @pthread_attr_setstacksize(ptr %attributes, i64 {_STACK})
{{block}}
  br label %loop
loop:
  %i = phi i64 [ 0, %fill ], [ %next, %started ]
  %more = icmp slt i64 %i, %workers
  br i1 %more, label %start, label %ready
start:
  %offset = mul i64 %i, 8
  %place = add i64 %offset, {_THREADS}
  %thread = getelementptr i8, ptr %pool, i64 %place
  %error = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @intarsia_pool_worker, ptr %pool)
  %good = icmp eq i32 %error, 0
  br i1 %good, label %started, label %ready
started:
  %next = add i64 %i, 1
  br label %loop
ready:
  store i64 %i, ptr %count, align 8
{{restore}}
  call i32 @pthread_attr_destroy(ptr %attributes)
  ret ptr %pool
}}}}
"""

_DESTROY = f"""
define void @intarsia_pool_destroy(ptr %pool) {{
entry:
  %none = icmp eq ptr %pool, null
  br i1 %none, label %out, label %whose
whose:
  {_at("owner", _OWNER)}
  %creator = load i32, ptr %owner, align 4
  %me = call i32 @getpid()
  %mine = icmp eq i32 %creator, %me
  br i1 %mine, label %end, label %release
end:
  {_at("stop", _STOP)}
  store atomic i32 1, ptr %stop seq_cst, align 4
  {_at("wake", _WAKE)}
  %bumped = atomicrmw add ptr %wake, i32 1 seq_cst, align 4
  call void @intarsia_pool_wake(ptr %wake)
  {_at("count", _WORKERS)}
  %workers = load i64, ptr %count, align 8
  br label %loop
loop:
  %i = phi i64 [ 0, %end ], [ %next, %join ]
  %more = icmp slt i64 %i, %workers
  br i1 %more, label %join, label %release
join:
  %offset = mul i64 %i, 8
  %place = add i64 %offset, {_THREADS}
  %where = getelementptr i8, ptr %pool, i64 %place
  %thread = load ptr, ptr %where, align 8
  call i32 @pthread_join(ptr %thread, ptr null)
  %next = add i64 %i, 1
  br label %loop
release:
  call void @free(ptr %pool)
  br label %out
out:
  ret void
}}
"""

_WORKER = f"""
define internal ptr @intarsia_pool_worker(ptr %pool) {{{{
entry:
  {_at("wake", _WAKE)}
  {_at("sleepers", _SLEEPERS)}
  {_at("stop", _STOP)}
  br label %wait
wait:                                             ; seen: the last epoch this worker has worked in
  %seen = phi i64 [ 0, %entry ], [ %epoch, %work ], [ %seen, %slept ]
  br label %spin
spin:
  %turn = phi i64 [ 0, %wait ], [ %turned, %again ]
  %ticket = load atomic i64, ptr %pool acquire, align 8
  %epoch = lshr i64 %ticket, 32
  %new = icmp ne i64 %epoch, %seen
  %closed = and i64 %ticket, {_CLOSED}
  %open = icmp eq i64 %closed, 0
  %job = and i1 %new, %open
  br i1 %job, label %work, label %idle
work:
  call void @intarsia_pool_work(ptr %pool)
  br label %wait
idle:
  %ended = load atomic i32, ptr %stop acquire, align 4
  %over = icmp ne i32 %ended, 0
  br i1 %over, label %out, label %again
again:
  {{pause}}
  %turned = add i64 %turn, 1
  %patient = icmp slt i64 %turned, {{spins}}
  br i1 %patient, label %spin, label %sleep
sleep:
  %others = atomicrmw add ptr %sleepers, i32 1 seq_cst, align 4
  %word = load atomic i32, ptr %wake seq_cst, align 4
  %last.ticket = load atomic i64, ptr %pool seq_cst, align 8
  %last.epoch = lshr i64 %last.ticket, 32
  %last.new = icmp ne i64 %last.epoch, %seen
  %last.ended = load atomic i32, ptr %stop seq_cst, align 4
  %last.over = icmp ne i32 %last.ended, 0
  %awake = or i1 %last.new, %last.over
  br i1 %awake, label %slept, label %down
down:
  call void @intarsia_pool_sleep(ptr %wake, i32 %word)
  br label %slept
slept:
  %left = atomicrmw sub ptr %sleepers, i32 1 seq_cst, align 4
  br label %wait
out:
  ret ptr null
}}}}
"""

_WORK = f"""
define internal void @intarsia_pool_work(ptr %pool) {{
entry:
  {_at("limits", _LIMIT)}
  {_at("dones", _DONE)}
  {_at("fns", _FN)}
  {_at("envs", _ENV)}
  br label %take
take:
  %ticket = atomicrmw add ptr %pool, i64 1 seq_cst, align 8
  %index = and i64 %ticket, 4294967295
  %limit = load atomic i64, ptr %limits acquire, align 8
  %below = icmp ult i64 %index, %limit
  br i1 %below, label %still, label %out
still:                                            ; is the limit that of the epoch the index was taken in?
  %now = load atomic i64, ptr %pool acquire, align 8
  %changed = xor i64 %now, %ticket
  %epochs = lshr i64 %changed, 32
  %same = icmp eq i64 %epochs, 0
  br i1 %same, label %run, label %out
run:
  %fn = load ptr, ptr %fns, align 8
  %env = load ptr, ptr %envs, align 8
  call void %fn(ptr %env, i64 %index)
  %before = atomicrmw add ptr %dones, i64 1 acq_rel, align 8
  br label %take
out:
  ret void
}}
"""

_PARALLEL_FOR = f"""
define void @intarsia_parallel_for(ptr %ctx, ptr %fn, ptr %env, i64 %n) {{{{
entry:
  %none = icmp slt i64 %n, 1
  br i1 %none, label %out, label %some
some:
  %single = icmp eq i64 %n, 1
  %huge = icmp sge i64 %n, {_CLOSED}
  %bare = icmp eq ptr %ctx, null
  %small = or i1 %single, %huge
  %alone = or i1 %small, %bare
  br i1 %alone, label %serial, label %look
look:
  %pool = load ptr, ptr %ctx, align 8
  %null = icmp eq ptr %pool, null
  br i1 %null, label %serial, label %look.workers
look.workers:
  {_at("count", _WORKERS)}
  %workers = load i64, ptr %count, align 8
  %lonely = icmp eq i64 %workers, 0
  br i1 %lonely, label %serial, label %enter
enter:
  {_at("busy", _BUSY)}
  %entered = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic, align 4
  %got = extractvalue {{{{ i32, i1 }}}} %entered, 1
  br i1 %got, label %post, label %serial
post:
  {_at("fns", _FN)}
  {_at("envs", _ENV)}
  {_at("limits", _LIMIT)}
  {_at("dones", _DONE)}
  {_at("wake", _WAKE)}
  {_at("sleepers", _SLEEPERS)}
  %old = load atomic i64, ptr %pool monotonic, align 8
  %high = and i64 %old, -4294967296
  %opened = add i64 %high, 4294967296
  %shut = or i64 %opened, {_CLOSED}
  store atomic i64 %shut, ptr %pool seq_cst, align 8
  store ptr %fn, ptr %fns, align 8
  store ptr %env, ptr %envs, align 8
  store atomic i64 0, ptr %dones release, align 8
  store atomic i64 %n, ptr %limits release, align 8
  store atomic i64 %opened, ptr %pool seq_cst, align 8
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %call = icmp ne i32 %asleep, 0
  br i1 %call, label %rouse, label %help
rouse:
  %bumped = atomicrmw add ptr %wake, i32 1 seq_cst, align 4
  call void @intarsia_pool_wake(ptr %wake)
  br label %help
help:
  call void @intarsia_pool_work(ptr %pool)
  br label %await
await:
  %turn = phi i64 [ 0, %help ], [ %turned, %pausing ], [ %turn, %yielding ]
  %done = load atomic i64, ptr %dones acquire, align 8
  %complete = icmp eq i64 %done, %n
  br i1 %complete, label %leave, label %patience
patience:
  %patient = icmp slt i64 %turn, {{spins}}
  br i1 %patient, label %pausing, label %yielding
pausing:
  {{pause}}
  %turned = add i64 %turn, 1
  br label %await
yielding:
  call i32 @sched_yield()
  br label %await
leave:
  store atomic i32 0, ptr %busy release, align 4
  br label %out
serial:
  %i = phi i64 [ 0, %some ], [ 0, %look ], [ 0, %look.workers ], [ 0, %enter ], [ %next, %serial ]
  call void %fn(ptr %env, i64 %i)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %serial, label %out
out:
  ret void
}}}}
"""

_SLEEP_FUTEX = """
define internal void @intarsia_pool_sleep(ptr %word, i32 %value) {{
  call i64 (i64, ...) @syscall(i64 {number}, ptr %word, i32 128, i32 %value, ptr null)
  ret void
}}

define internal void @intarsia_pool_wake(ptr %word) {{
  call i64 (i64, ...) @syscall(i64 {number}, ptr %word, i32 129, i32 2147483647)
  ret void
}}
"""

_SLEEP_YIELD = """
define internal void @intarsia_pool_sleep(ptr %word, i32 %value) {
  call i32 @sched_yield()
  ret void
}

define internal void @intarsia_pool_wake(ptr %word) {
  ret void
}
"""
