"""The console: one page that drives a labour, shows every stage live, and injects faults. It has no access of its own: it uses
the services' APIs, the HTTP ports of bus and sandbox, and the runtime.
"""
