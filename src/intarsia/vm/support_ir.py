"""The native tier's run-time support, as LLVM IR text: contexts, the frame arena, counted heap blocks.

    context  {pool, chunk, top, end, live, stack limit, message, a, b, constants, lists}  one per call in
    flight
    chunk    {previous, next, end} then memory                            the arena is a list of chunks
    block    {previous, next, references, class} then memory              64 bytes before the data

Heap blocks come in classes of (4 … 7) * 2^n bytes. Those alive are linked in the context, so that a failed
call can give back what it held; those given back wait in the context's free list of their class. A block that
leaves with a result is unlinked and later freed by whoever drops it. After some calls of one size nothing
asks the system for memory.
"""

from __future__ import annotations

HEADER = 64
STACK_OVERFLOW = -1
OUT_OF_MEMORY = -2
_LISTS = 256
CONTEXT_BYTES = 128 + 8 * _LISTS
POOL, CHUNK, TOP, END, LIVE, STACK, MESSAGE, A, B = range(9)  # words of the context
CONSTANTS, RESULTS, STACK_BYTES, TYPES, NUMPY, GONE = range(9, 15)  # set from outside (trampoline.py)
TENSOR = "%tensor"
TENSOR_WORDS = 10  # data, owner, eight dimensions

NO_SIZE = 1 << 61  # bytes: no tensor has so many

SUPPORT = f"""
%tensor = type {{ ptr, ptr, [8 x i64] }}
%context = type {{ ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, i64, ptr, [6 x i64], [{_LISTS} x ptr] }}
%chunk = type {{ ptr, ptr, ptr, [5 x i64] }}
%block = type {{ ptr, ptr, i64, i64, [4 x i64] }}

declare ptr @aligned_alloc(i64, i64)
declare {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64, i64)
declare void @free(ptr)
declare i64 @llvm.ctlz.i64(i64, i1)
declare ptr @llvm.frameaddress.p0(i32)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; ---- sizes: dimensions multiplied, in bytes; {NO_SIZE} if one is negative or there are too many to count
define internal i64 @intarsia_times(i64 %total, i64 %d) {{
  %r = call {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64 %total, i64 %d)
  %v = extractvalue {{ i64, i1 }} %r, 0
  %over = extractvalue {{ i64, i1 }} %r, 1
  %negative = icmp slt i64 %d, 0
  %large = icmp uge i64 %v, {NO_SIZE}
  %already = icmp uge i64 %total, {NO_SIZE}
  %a = or i1 %over, %negative
  %b = or i1 %large, %already
  %bad = or i1 %a, %b
  %size = select i1 %bad, i64 {NO_SIZE}, i64 %v
  ret i64 %size
}}

; ---- contexts
define ptr @intarsia_context_new(ptr %pool, ptr %constants) {{
  %c = call ptr @aligned_alloc(i64 64, i64 {CONTEXT_BYTES})
  %none = icmp eq ptr %c, null
  br i1 %none, label %fail, label %ok
ok:
  call void @llvm.memset.p0.i64(ptr %c, i8 0, i64 {CONTEXT_BYTES}, i1 false)
  store ptr %pool, ptr %c
  %cp = getelementptr %context, ptr %c, i32 0, i32 9
  store ptr %constants, ptr %cp
  ret ptr %c
fail:
  ret ptr null
}}

define void @intarsia_context_delete(ptr %c) {{
  call void @intarsia_release_all(ptr %c)
  %lists = getelementptr %context, ptr %c, i32 0, i32 11
  br label %list
list:
  %i = phi i64 [ 0, %0 ], [ %i1, %emptied ]
  %slot = getelementptr ptr, ptr %lists, i64 %i
  br label %next
next:
  %b = load ptr, ptr %slot
  %none = icmp eq ptr %b, null
  br i1 %none, label %emptied, label %drop
drop:
  %np = getelementptr %block, ptr %b, i32 0, i32 1
  %n = load ptr, ptr %np
  store ptr %n, ptr %slot
  call void @free(ptr %b)
  br label %next
emptied:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {_LISTS}
  br i1 %more, label %list, label %chunks
chunks:
  %chp = getelementptr %context, ptr %c, i32 0, i32 1
  %ch = load ptr, ptr %chp
  br label %walk
walk:
  %k = phi ptr [ %ch, %chunks ], [ %kn, %one ]
  %knone = icmp eq ptr %k, null
  br i1 %knone, label %done, label %one
one:
  %knp = getelementptr %chunk, ptr %k, i32 0, i32 1
  %kn = load ptr, ptr %knp
  call void @free(ptr %k)
  br label %walk
done:
  call void @free(ptr %c)
  ret void
}}

; ---- the frame arena: chunk, top and end always name the chunk in use
define internal ptr @intarsia_frame(ptr %c, i64 %bytes) {{
  %topp = getelementptr %context, ptr %c, i32 0, i32 2
  %endp = getelementptr %context, ptr %c, i32 0, i32 3
  %top = load ptr, ptr %topp
  %end = load ptr, ptr %endp
  %t = ptrtoint ptr %top to i64
  %e = ptrtoint ptr %end to i64
  %room = sub i64 %e, %t
  %up = add i64 %bytes, 64                        ; never nothing: the first chunk may not be there yet
  %size = and i64 %up, -64
  %fits = icmp ule i64 %size, %room
  br i1 %fits, label %here, label %elsewhere
here:
  %after = getelementptr i8, ptr %top, i64 %size
  store ptr %after, ptr %topp
  ret ptr %top
elsewhere:
  %r = call ptr @intarsia_frame_chunk(ptr %c, i64 %size)
  ret ptr %r
}}

define internal ptr @intarsia_frame_chunk(ptr %c, i64 %size) noinline {{
  %huge = icmp ugt i64 %size, 70368744177664
  br i1 %huge, label %fail, label %start
start:
  %chp = getelementptr %context, ptr %c, i32 0, i32 1
  %topp = getelementptr %context, ptr %c, i32 0, i32 2
  %endp = getelementptr %context, ptr %c, i32 0, i32 3
  %ch = load ptr, ptr %chp
  %first = icmp eq ptr %ch, null
  br i1 %first, label %fresh, label %follow
follow:
  %np = getelementptr %chunk, ptr %ch, i32 0, i32 1
  %n = load ptr, ptr %np
  %last = icmp eq ptr %n, null
  br i1 %last, label %fresh, label %try
try:
  %nep = getelementptr %chunk, ptr %n, i32 0, i32 2
  %ne = load ptr, ptr %nep
  %nd = getelementptr i8, ptr %n, i64 64
  %nei = ptrtoint ptr %ne to i64
  %ndi = ptrtoint ptr %nd to i64
  %have = sub i64 %nei, %ndi
  %enough = icmp uge i64 %have, %size
  br i1 %enough, label %use, label %fresh
fresh:                                            ; a new chunk after the present one
  %small = icmp ult i64 %size, 65536
  %want = select i1 %small, i64 65536, i64 %size
  %total = add i64 %want, 64
  %m = call ptr @aligned_alloc(i64 64, i64 %total)
  %none = icmp eq ptr %m, null
  br i1 %none, label %fail, label %link
link:
  %mend = getelementptr i8, ptr %m, i64 %total
  %mep = getelementptr %chunk, ptr %m, i32 0, i32 2
  store ptr %mend, ptr %mep
  store ptr %ch, ptr %m
  %mnp = getelementptr %chunk, ptr %m, i32 0, i32 1
  store ptr null, ptr %mnp
  br i1 %first, label %use, label %insert
insert:
  %inp = getelementptr %chunk, ptr %ch, i32 0, i32 1
  %old = load ptr, ptr %inp
  store ptr %old, ptr %mnp
  store ptr %m, ptr %inp
  %alone = icmp eq ptr %old, null
  br i1 %alone, label %use, label %back
back:
  store ptr %m, ptr %old
  br label %use
use:
  %u = phi ptr [ %n, %try ], [ %m, %link ], [ %m, %insert ], [ %m, %back ]
  %uep = getelementptr %chunk, ptr %u, i32 0, i32 2
  %ue = load ptr, ptr %uep
  %ud = getelementptr i8, ptr %u, i64 64
  %ut = getelementptr i8, ptr %ud, i64 %size
  store ptr %u, ptr %chp
  store ptr %ut, ptr %topp
  store ptr %ue, ptr %endp
  ret ptr %ud
fail:
  ret ptr null
}}

define internal void @intarsia_frame_back(ptr %c, ptr %chunk, ptr %top) {{
  %chp = getelementptr %context, ptr %c, i32 0, i32 1
  %topp = getelementptr %context, ptr %c, i32 0, i32 2
  %now = load ptr, ptr %chp
  %same = icmp eq ptr %now, %chunk
  br i1 %same, label %quick, label %slow
quick:
  store ptr %top, ptr %topp
  ret void
slow:
  %none = icmp eq ptr %chunk, null                ; the call began without any chunk: stay on the first
  br i1 %none, label %rewind, label %switch
rewind:
  %k = phi ptr [ %now, %slow ], [ %p, %rewind ]
  %p = load ptr, ptr %k
  %isfirst = icmp eq ptr %p, null
  br i1 %isfirst, label %switch, label %rewind
switch:
  %to = phi ptr [ %chunk, %slow ], [ %k, %rewind ]
  %data = getelementptr i8, ptr %to, i64 64
  %t = select i1 %none, ptr %data, ptr %top
  %ep = getelementptr %chunk, ptr %to, i32 0, i32 2
  %e = load ptr, ptr %ep
  %endp = getelementptr %context, ptr %c, i32 0, i32 3
  store ptr %to, ptr %chp
  store ptr %t, ptr %topp
  store ptr %e, ptr %endp
  ret void
}}

; ---- heap blocks
define internal ptr @intarsia_heap(ptr %c, i64 %bytes) {{
  %huge = icmp ugt i64 %bytes, 70368744177664
  br i1 %huge, label %fail, label %size
size:
  %n0 = add i64 %bytes, {HEADER}
  %tiny = icmp ult i64 %n0, 256
  %n = select i1 %tiny, i64 256, i64 %n0
  %n1 = sub i64 %n, 1
  %lz = call i64 @llvm.ctlz.i64(i64 %n1, i1 false)
  %e = sub i64 63, %lz
  %e2 = sub i64 %e, 2
  %q = lshr i64 %n1, %e2
  %q1 = add i64 %q, 1                             ; 5 … 8 quarters
  %total = shl i64 %q1, %e2
  %e4 = shl i64 %e, 2
  %class = add i64 %e4, %q
  %class4 = sub i64 %class, 4
  %lists = getelementptr %context, ptr %c, i32 0, i32 11
  %slot = getelementptr ptr, ptr %lists, i64 %class4
  %b = load ptr, ptr %slot
  %none = icmp eq ptr %b, null
  br i1 %none, label %fresh, label %reuse
reuse:
  %bnp = getelementptr %block, ptr %b, i32 0, i32 1
  %bn = load ptr, ptr %bnp
  store ptr %bn, ptr %slot
  br label %link
fresh:
  %m = call ptr @aligned_alloc(i64 64, i64 %total)
  %mnone = icmp eq ptr %m, null
  br i1 %mnone, label %fail, label %stamp
stamp:
  %mc = getelementptr %block, ptr %m, i32 0, i32 3
  store i64 %class4, ptr %mc
  br label %link
link:
  %x = phi ptr [ %b, %reuse ], [ %m, %stamp ]
  %livep = getelementptr %context, ptr %c, i32 0, i32 4
  %head = load ptr, ptr %livep
  store ptr null, ptr %x
  %xn = getelementptr %block, ptr %x, i32 0, i32 1
  store ptr %head, ptr %xn
  %xr = getelementptr %block, ptr %x, i32 0, i32 2
  store i64 1, ptr %xr
  store ptr %x, ptr %livep
  %alone = icmp eq ptr %head, null
  br i1 %alone, label %done, label %back
back:
  store ptr %x, ptr %head
  br label %done
done:
  ret ptr %x
fail:
  ret ptr null
}}

define internal void @intarsia_retain(ptr %b) alwaysinline {{
  %none = icmp eq ptr %b, null
  br i1 %none, label %done, label %count
count:
  %rp = getelementptr %block, ptr %b, i32 0, i32 2
  %r = load i64, ptr %rp
  %r1 = add i64 %r, 1
  store i64 %r1, ptr %rp
  br label %done
done:
  ret void
}}

define internal void @intarsia_unlink(ptr %c, ptr %b) {{
  %np = getelementptr %block, ptr %b, i32 0, i32 1
  %n = load ptr, ptr %np
  %p = load ptr, ptr %b
  %livep = getelementptr %context, ptr %c, i32 0, i32 4
  %pnp = getelementptr %block, ptr %p, i32 0, i32 1
  %first = icmp eq ptr %p, null
  %from = select i1 %first, ptr %livep, ptr %pnp
  store ptr %n, ptr %from
  %last = icmp eq ptr %n, null
  br i1 %last, label %done, label %back
back:
  store ptr %p, ptr %n
  br label %done
done:
  ret void
}}

define internal void @intarsia_release(ptr %c, ptr %b) {{
  %none = icmp eq ptr %b, null
  br i1 %none, label %done, label %count
count:
  %rp = getelementptr %block, ptr %b, i32 0, i32 2
  %r = load i64, ptr %rp
  %r1 = sub i64 %r, 1
  store i64 %r1, ptr %rp
  %dead = icmp eq i64 %r1, 0
  br i1 %dead, label %drop, label %done
drop:
  call void @intarsia_unlink(ptr %c, ptr %b)
  %cp = getelementptr %block, ptr %b, i32 0, i32 3
  %class = load i64, ptr %cp
  %lists = getelementptr %context, ptr %c, i32 0, i32 11
  %slot = getelementptr ptr, ptr %lists, i64 %class
  %head = load ptr, ptr %slot
  %np = getelementptr %block, ptr %b, i32 0, i32 1
  store ptr %head, ptr %np
  store ptr %b, ptr %slot
  br label %done
done:
  ret void
}}

define internal void @intarsia_release_all(ptr %c) {{
  %livep = getelementptr %context, ptr %c, i32 0, i32 4
  br label %next
next:
  %b = load ptr, ptr %livep
  %none = icmp eq ptr %b, null
  br i1 %none, label %done, label %one
one:
  %rp = getelementptr %block, ptr %b, i32 0, i32 2
  store i64 1, ptr %rp
  call void @intarsia_release(ptr %c, ptr %b)
  br label %next
done:
  ret void
}}

; ---- tensors: what does not outlive its call is copied
define internal i32 @intarsia_own(ptr %c, ptr %dst, ptr %src, i64 %bytes) {{
  %b = call ptr @intarsia_heap(ptr %c, i64 %bytes)
  %none = icmp eq ptr %b, null
  br i1 %none, label %fail, label %ok
ok:
  %data = getelementptr i8, ptr %b, i64 {HEADER}
  %from = load ptr, ptr %src
  call void @llvm.memcpy.p0.p0.i64(ptr %data, ptr %from, i64 %bytes, i1 false)
  store ptr %data, ptr %dst
  %op = getelementptr %tensor, ptr %dst, i32 0, i32 1
  store ptr %b, ptr %op
  ret i32 0
fail:
  %r = call i32 @intarsia_fail(ptr %c, i64 {OUT_OF_MEMORY}, i64 %bytes, i64 0)
  ret i32 %r
}}

define internal i32 @intarsia_fail(ptr %c, i64 %message, i64 %a, i64 %b) noinline {{
  %mp = getelementptr %context, ptr %c, i32 0, i32 6
  %ap = getelementptr %context, ptr %c, i32 0, i32 7
  %bp = getelementptr %context, ptr %c, i32 0, i32 8
  store i64 %message, ptr %mp
  store i64 %a, ptr %ap
  store i64 %b, ptr %bp
  ret i32 1
}}

define internal i64 @intarsia_floordiv(i64 %a, i64 %b) {{
  %zero = icmp eq i64 %b, 0
  %d = select i1 %zero, i64 1, i64 %b
  %q = sdiv i64 %a, %d
  %r = srem i64 %a, %d
  %rest = icmp ne i64 %r, 0
  %x = xor i64 %r, %d
  %differ = icmp slt i64 %x, 0
  %adjust = and i1 %rest, %differ
  %less = sext i1 %adjust to i64
  %floor = add i64 %q, %less
  %result = select i1 %zero, i64 0, i64 %floor
  ret i64 %result
}}

define internal i64 @intarsia_mod(i64 %a, i64 %b) {{
  %q = call i64 @intarsia_floordiv(i64 %a, i64 %b)
  %m = mul i64 %q, %b
  %r = sub i64 %a, %m
  %zero = icmp eq i64 %b, 0
  %result = select i1 %zero, i64 0, i64 %r
  ret i64 %result
}}
"""
