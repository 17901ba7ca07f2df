"""The commands of `fern`, as `fern --help` lists them. Those under `OPERATE` also work on another system."""

OPERATE = "Operate it, here or on another system (--context)"
SECTIONS = {
    "Run it on this machine": {
        "up": "Start everything and wait until it is healthy.",
        "demo": "Play one labour and watch every hop to the phones.",
        "status": "Show every process: state, pid, uptime, restarts, health.",
        "logs": "Show the logs of one process, or of all merged by time.",
        "down": "Stop everything gracefully. The data is kept.",
        "reset": "Stop everything and delete all data and logs.",
        "doctor": "Look for problems that would keep the system from starting.",
        "console": "Serve the web page that drives a labour, shows every stage live, and injects faults.",
        "spans": "Show the spans of a labour or an event that the console has received, process by process.",
        "token": "Print an access token for the Labour API, for any user name.",
    },
    "Break it and measure it": {
        "kill": "Kill a process with SIGKILL. Its supervisor starts it again.",
        "fault": "Inject faults into the bus or the SMS sandbox, and clear them.",
        "scale": "Run more, or fewer, of a process: fern scale notification-consumer=3.",
        "drain": "Handle the messages that wait for a consumer, once, as a scheduled job does.",
        "consent": "Ask each person before they are texted (required), or not (assumed), on this machine.",
        "chaos": "Inject faults under load, from a seed, and account for every message.",
        "soak": "Run a steady load, with faults, and say whether anything grows.",
        "museum": "Put common mistakes back in, one by one, and show that each is detected.",
        "quest": "Run other designs and ours, side by side, under the same faults.",
        "fairness": "Queue many texts of one labour, and measure how long the text about another birth waits.",
        "alerts": "Break a system for each alert, and show that it fires and clears.",
        "bench": "Measure every stage beside other designs and the limits of this machine.",
    },
    OPERATE: {
        "audit": "Account for every event: committed = published = claimed = effects = SMS.",
        "trace": "Show every hop of an event, from the request to the SMS; or the events of a labour.",
        "outbox": "List, retry or discard events that wait or are parked.",
        "dlq": "List, show, redrive or discard messages that a consumer could not handle.",
        "replay": "Publish events again, by time, labour or type, after showing the effect.",
        "retention": "Delete claims and published events that are too old to be replayed.",
        "statistics": "Verify the balances of the labours' statistics against their postings, or rebuild them.",
        "sms": "Serve the SMS sandbox and reply from its phones; list messages, and resolve those in doubt.",
        "topology": "Apply or show the topics and subscriptions, or set how they are delivered.",
        "context": "List or show the systems that the operators' commands can work on.",
    },
    "Develop and deploy it": {
        "contracts": "Write or release the events' schemas and pages, and check that every event is complete.",
        "pubsub": "Serve the durable Pub/Sub emulator, or compare it with Google's.",
        "plan": "Estimate how many of each process a load needs, and what it may cost.",
        "deployment": "Write the variables of infra/gcp, the exporters of infra/kubernetes, alert rules and dashboard.",
    },
}
COMMANDS = {name: summary for section in SECTIONS.values() for name, summary in section.items()}
