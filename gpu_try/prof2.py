import time, statistics, sys, os
import torch, drover, drover.torch
from drover import _objects, _core, _session
clock=time.perf_counter_ns
def child(q,r,how):
    torch.zeros(1,device="cuda").item()
    marks={}
    real=_objects.loads
    def loads(*m):
        marks["a"]=clock(); y=real(*m); marks["b"]=clock(); return y
    _objects.loads=loads
    import drover._queues as Q, drover._queue_reader as R
    r.put("ready")
    while True:
        got=q.get(); t=clock()
        if got is None: break
        a,b=marks["a"],marks["b"]
        r.put((a,b,t))
        if how=="read": int(next(reversed(got.values()))[-1])
        t=clock(); del got; d=clock()-t
        r.put(d)
def run(name,s,how,touch,n=60):
    q,r=drover.Queue(),drover.Queue()
    p=drover.Process(target=child,args=(q,r,how)); p.start(); r.get()
    M=[]
    marks={}
    real=_objects.dumps
    def dumps(*a,**k):
        y=real(*a,**k); marks["d"]=clock(); return y
    _objects.dumps=dumps
    last=next(reversed(s.values()))
    for i in range(n):
        if touch: last[-1]=i
        t0=clock(); q.put(s); t2=clock(); td=marks["d"]
        a,b,t=r.get(); t3=clock()
        d=r.get()
        M.append((td-t0,t2-td,a-t2,b-a,t-b,t3-t,t3-t0,d))
    _objects.dumps=real
    q.put(None); p.join()
    print(name,how,touch,*(f"{k} {statistics.median(v)/1e3:.0f}" for k,v in zip("dumps put tocore loads after answer total drop".split(),zip(*M[10:]))),flush=True)
N=131072
if __name__=="__main__":
    for n in (8,60,1000):
        plain={f"layer{i}.weight": torch.zeros(N,dtype=torch.int64,device="cuda") for i in range(n)}
        slab={f"layer{i}.weight": drover.torch.zeros(N,dtype=torch.int64,device="cuda") for i in range(n)}
        for how in ("read","no"):
            for touch in (0,1):
                k=60 if n<500 else 25
                run(f"plain {n}",plain,how,touch,k); run(f"slab {n}",slab,how,touch,k)
