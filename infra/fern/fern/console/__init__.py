"""The console: one page that drives a labour, shows every stage live, and breaks whatever you like.

It sees the system as any operator could: through the services' APIs, the HTTP ports of bus and sandbox, and the runtime.
"""
