# The one place that says what runs, with which settings and secrets. docker-compose.yml has the same processes; a test compares them.

locals {
  services = toset(["labour", "notification"])

  ports = {
    labour-api             = 8401
    notification-api       = 8402
    labour-operators       = 8407
    notification-operators = 8408
  }

  monitor_port = 8080 # of every API and worker, for probes and metrics: servicekit/monitor.py. The collector reads this one by default

  # The addresses follow from the number of the project, so a service can know its own before it exists.
  urls = { for name in keys(local.ports) : name => "https://${name}-${data.google_project.this.number}.${var.region}.run.app" }

  settings = {
    labour = {
      LABOUR_API_HOST         = "0.0.0.0"
      LABOUR_API_PORT         = tostring(local.ports["labour-api"])
      LABOUR_OPERATORS_PORT   = "0" # none, and no tokens: see `operators` below
      PUBSUB_PROJECT_ID       = var.project
      JWKS_URL                = var.jwks_url
      TOKEN_ISSUER            = var.token_issuer
      HTTP_KEEP_ALIVE_SECONDS = "620" # longer than the keep-alive of Google's front end
    }
    notification = merge({
      NOTIFICATION_API_HOST       = "0.0.0.0"
      NOTIFICATION_API_PORT       = tostring(local.ports["notification-api"])
      NOTIFICATION_OPERATORS_PORT = "0"
      PUBSUB_PROJECT_ID           = var.project
      PUBLIC_URL                  = local.urls["notification-api"]
      HTTP_KEEP_ALIVE_SECONDS     = "620"
      }, local.is_pushed ? {
      PUSH_AUDIENCE        = local.push_audience
      PUSH_SERVICE_ACCOUNT = google_service_account.push.email
    } : {})
  }

  # The variable that each secret becomes, for the processes that read it. The others have none.
  secrets = merge(
    { for name in ["labour-operators"] : name => {
      OPERATOR_READ_TOKENS  = "labour-operator-read-tokens"
      OPERATOR_WRITE_TOKENS = "labour-operator-write-tokens"
    } },
    { for name in ["notification-operators"] : name => {
      OPERATOR_READ_TOKENS  = "notification-operator-read-tokens"
      OPERATOR_WRITE_TOKENS = "notification-operator-write-tokens"
      TWILIO_AUTH_TOKEN     = "twilio-auth-token" # it is the API as well, at 127.0.0.1, whose webhooks check signatures
    } },
    { for name in ["notification-api"] : name => {
      TWILIO_AUTH_TOKEN = "twilio-auth-token"
    } },
    { for name in ["notification-dispatcher"] : name => {
      TWILIO_ACCOUNT_SID = "twilio-account-sid"
      TWILIO_AUTH_TOKEN  = "twilio-auth-token"
      TWILIO_FROM        = "twilio-from"
    } },
  )

  apis = {
    labour-api       = { service = "labour", command = ["python", "-m", "labour", "api"] }
    notification-api = { service = "notification", command = ["python", "-m", "notification", "api"] }
  }

  # Cloud Run gives a service one port. So the operators' listener is a service of its own, which only members of `var.operators` reach.
  operators = {
    labour-operators       = { service = "labour", command = ["python", "-m", "labour", "api"] }
    notification-operators = { service = "notification", command = ["python", "-m", "notification", "api"] }
  }

  workers = {
    labour-relay            = { service = "labour", command = ["python", "-m", "labour", "relay"] }
    labour-consumer         = { service = "labour", command = ["python", "-m", "labour", "consumer"] }
    labour-statistics       = { service = "labour", command = ["python", "-m", "labour", "statistics"] }
    notification-relay      = { service = "notification", command = ["python", "-m", "notification", "relay"] }
    notification-consumer   = { service = "notification", command = ["python", "-m", "notification", "consumer"] }
    notification-dispatcher = { service = "notification", command = ["python", "-m", "notification", "dispatcher"] }
  }

  # Retention is no job: the relay of each service does it every hour.
  jobs = {
    labour-migrations       = { service = "labour", command = "alembic -c services/labour/alembic.ini upgrade head" }
    notification-migrations = { service = "notification", command = "alembic -c services/notification/alembic.ini upgrade head" }
    notification-drain      = { service = "notification", command = "python -m notification consumer --drain" }
  }

  processes = merge(local.apis, local.operators, local.workers, local.jobs)

  # What reads events is upgraded first: docs/operations.md, "Rolling upgrades". The API reads them if the bus pushes.
  consumers_of_events = concat(values(local.consumers), local.is_pushed ? ["notification-api"] : [])

  images = { for name, process in local.processes : name => format(
    "%s/%s:%s", local.registry, process.service,
    contains(local.consumers_of_events, name) ? coalesce(var.release_of_consumers, var.release) : var.release
  ) }

  job_images = { for name in ["labour", "notification", "tools"] : name => "${local.registry}/${name}:${coalesce(var.release_of_jobs, var.release)}" }
  proxy      = "gcr.io/cloud-sql-connectors/cloud-sql-proxy:2.18.2"
  psql       = "docker.io/library/postgres:18.6-trixie"

  # Each process logs in as its own account, through the proxy beside it: no password, and an encrypted connection.
  database_urls = {
    for name, process in local.processes : name => format(
      "postgresql+asyncpg://%s@127.0.0.1:5432/%s", urlencode(google_sql_user.process[name].name), process.service
    )
  }

  connection_names = { for name in local.services : name => lookup(var.connection_names, name, google_sql_database_instance.service[name].connection_name) }

  environments = {
    for name, process in local.processes : name => merge(
      local.settings[process.service],
      { "${upper(process.service)}_DATABASE_URL" = local.database_urls[name] },
      contains(keys(local.operators), name) ? {
        "${upper(process.service)}_API_HOST"       = "127.0.0.1"
        "${upper(process.service)}_OPERATORS_HOST" = "0.0.0.0"
        "${upper(process.service)}_OPERATORS_PORT" = tostring(local.ports[name])
      } : {},
      contains(keys(merge(local.apis, local.workers)), name) ? { MONITOR_HOST = "0.0.0.0", MONITOR_PORT = tostring(local.monitor_port), OTEL_METRICS_EXPORTER = "none" } : {},
    )
  }

  # Cloud Run stops all containers at once, and kills them after 10 s: until then the proxy waits for the process.
  proxy_arguments = ["--private-ip", "--auto-iam-authn", "--structured-logs", "--health-check", "--http-address=0.0.0.0", "--http-port=9090", "--max-sigterm-delay=10s"]
}
