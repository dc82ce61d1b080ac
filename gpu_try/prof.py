import time, statistics, sys, os
import torch, drover, drover.torch
from drover import _objects, _core, _session
def med(f, n=60, clean=None):
    v=[]
    for _ in range(n):
        t=time.perf_counter(); r=f(); v.append(time.perf_counter()-t)
        if clean: clean(r)
        del r
    return statistics.median(v)*1e6
def steps(name, s, n=60):
    q=drover.Queue()
    D=[];P=[];G=[];L=[];X=[];C=[]
    core=q
    for _ in range(n):
        t0=time.perf_counter(); m=_objects.dumps(s); t1=time.perf_counter()
        y=_objects.loads(*m); t2=time.perf_counter()
        del y; t3=time.perf_counter(); del m; t4=time.perf_counter()
        D.append(t1-t0); L.append(t2-t1); X.append(t3-t2); C.append(t4-t3)
        t0=time.perf_counter(); q.put(s); t1=time.perf_counter(); y=q.get(); t2=time.perf_counter()
        torch.cuda.synchronize(); t4=time.perf_counter(); del y; t3=time.perf_counter(); P.append(t1-t0); G.append(t2-t1)
    print(name, *(f"{k} {statistics.median(v)*1e6:.0f}" for k,v in dict(dumps=D,loads=L,drop=X,dropmsg=C,put=P,get=G).items()), flush=True)
N=131072
for n in (1,8,60,1000):
    plain={f"layer{i}.weight": torch.zeros(N,dtype=torch.int64,device="cuda") for i in range(n)}
    slab={f"layer{i}.weight": drover.torch.zeros(N,dtype=torch.int64,device="cuda") for i in range(n)}
    steps(f"plain {n}", plain, 40 if n<500 else 10); steps(f"slab {n}", slab, 40 if n<500 else 10)
s=_session.current()
t=plain["layer0.weight"]; u=slab["layer0.weight"]
def addn(x,k=60):
    a=_core.Arrays()
    for i in range(k): a.add(x[i])
    return a
pl=list(plain.values())[:60]; sl=list(slab.values())[:60]
print("add60", med(lambda: addn(pl)), "add60 slab", med(lambda: addn(sl)))
def take(l):
    a=addn(l); t0=time.perf_counter(); r=a.take(s); return time.perf_counter()-t0
print("take60 plain", statistics.median([take(pl) for _ in range(40)])*1e6, "slab", statistics.median([take(sl) for _ in range(40)])*1e6)
a=addn(pl); r=a.take(s)
print("to_array plain first", med(lambda: [ _core.to_array(x, torch.Tensor) for x in r]))
a=addn(sl); r2=a.take(s)
print("to_array slab", med(lambda: [ _core.to_array(x, torch.Tensor) for x in r2]))
import cProfile, pstats
st={k:v for k,v in list(slab.items())[:60]}; pt={k:v for k,v in list(plain.items())[:60]}
class Ar: pass
print("dumps parts: reduce only", med(lambda: [drover.torch._is_simple(x) for x in sl]), med(lambda:[x.untyped_storage() for x in sl]))
