# Every process has the Cloud SQL Auth Proxy beside it and starts when the proxy is ready. APIs and workers also have a collector.

locals {
  network_tag = "fernlabour"
}

resource "google_cloud_run_v2_service" "api" {
  for_each = { for name, api in merge(local.apis, local.operators) : name => api if var.stage == "running" && !contains(var.stopped, api.service) }

  name                = each.key
  location            = var.region
  ingress             = "INGRESS_TRAFFIC_ALL" # clients, Twilio, Pub/Sub, operators; each route checks its caller
  deletion_protection = false

  template {
    service_account                  = google_service_account.process[each.key].email
    max_instance_request_concurrency = 1000    # live streams stay open; a process refuses what is too much, and CPU scales it
    timeout                          = "3600s" # live streams

    scaling {
      min_instance_count = contains(keys(local.apis), each.key) ? 1 : 0
      max_instance_count = contains(keys(local.apis), each.key) ? 5 : 1 # docs/operations.md adds up the connections
    }

    vpc_access {
      egress = "PRIVATE_RANGES_ONLY"
      network_interfaces {
        network    = google_compute_network.private.id
        subnetwork = google_compute_subnetwork.processes.id
        tags       = [local.network_tag]
      }
    }

    containers {
      name       = "process"
      image      = local.images[each.key]
      command    = each.value.command
      depends_on = ["proxy"]

      ports {
        container_port = local.ports[each.key]
      }

      resources {
        limits            = { cpu = "1", memory = "512Mi" }
        cpu_idle          = false # it wakes the relay and listens for changes between requests
        startup_cpu_boost = true
      }

      # The operators' listener answers nothing without a token: there, Cloud Run only looks whether the port is open.
      dynamic "startup_probe" {
        for_each = contains(keys(local.apis), each.key) ? [1] : []
        content {
          period_seconds    = 2
          failure_threshold = 30
          http_get {
            path = "/health/ready"
            port = local.ports[each.key]
          }
        }
      }

      dynamic "liveness_probe" {
        for_each = contains(keys(local.apis), each.key) ? [1] : []
        content {
          period_seconds    = 10
          timeout_seconds   = 5
          failure_threshold = 3
          http_get {
            path = "/health/live" # a restart does not bring a database back
            port = local.ports[each.key]
          }
        }
      }

      dynamic "env" {
        for_each = local.environments[each.key]
        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = lookup(local.secrets, each.key, {})
        content {
          name = env.key
          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.setting[env.value].secret_id
              version = "latest"
            }
          }
        }
      }
    }

    containers {
      name  = "proxy"
      image = local.proxy
      args  = concat(local.proxy_arguments, [local.connection_names[each.value.service]])

      resources {
        limits = { cpu = "0.25", memory = "128Mi" }
      }

      startup_probe {
        period_seconds    = 1
        failure_threshold = 60
        http_get {
          path = "/startup"
          port = 9090
        }
      }
    }

    # Sends the metrics of the process to Managed Prometheus.
    dynamic "containers" {
      for_each = contains(keys(local.apis), each.key) ? [1] : []
      content {
        name       = "collector"
        image      = var.collector
        depends_on = ["process"]

        resources {
          limits = { cpu = "0.1", memory = "256Mi" }
        }
      }
    }
  }

  depends_on = [google_secret_manager_secret_iam_member.process, google_project_iam_member.database_client, google_project_iam_member.database_user]
}

# Every client may send a request; who may do what is decided by its token or signature.

resource "google_cloud_run_v2_service_iam_member" "public" {
  for_each = { for name, api in google_cloud_run_v2_service.api : name => api if contains(keys(local.apis), name) }

  name     = each.value.name
  location = each.value.location
  role     = "roles/run.invoker"
  member   = "allUsers"
}

# The listeners of operators: only these people, and then only with a token.

resource "google_cloud_run_v2_service_iam_member" "operators" {
  for_each = { for pair in setproduct(keys(local.operators), var.operators) : join(" ", pair) => { name = pair[0], member = pair[1] } if contains(keys(google_cloud_run_v2_service.api), pair[0]) }

  name     = google_cloud_run_v2_service.api[each.value.name].name
  location = var.region
  role     = "roles/run.invoker"
  member   = each.value.member
}

# Worker pools do not scale by themselves. A process that hangs ends by itself, and is started again; the probe is for one whose event
# loop no longer turns.

resource "google_cloud_run_v2_worker_pool" "worker" {
  for_each = { for name, worker in local.workers : name => worker if var.stage == "running" && !contains(var.stopped, worker.service) }

  name                = each.key
  location            = var.region
  deletion_protection = false

  scaling {
    manual_instance_count = lookup(var.replicas, each.key, 1)
  }

  template {
    service_account = google_service_account.process[each.key].email

    vpc_access {
      egress = "PRIVATE_RANGES_ONLY"
      network_interfaces {
        network    = google_compute_network.private.id
        subnetwork = google_compute_subnetwork.processes.id
        tags       = [local.network_tag]
      }
    }

    containers {
      name       = "process"
      image      = local.images[each.key]
      command    = each.value.command
      depends_on = ["proxy"]

      resources {
        limits = { cpu = "1", memory = "512Mi" }
      }

      startup_probe {
        period_seconds    = 2
        failure_threshold = 30
        http_get {
          path = "/health/live"
          port = local.monitor_port
        }
      }

      liveness_probe {
        period_seconds    = 10
        timeout_seconds   = 5
        failure_threshold = 3
        http_get {
          path = "/health/live" # it is live while it waits for a database: a restart does not bring that back
          port = local.monitor_port
        }
      }

      dynamic "env" {
        for_each = local.environments[each.key]
        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = lookup(local.secrets, each.key, {})
        content {
          name = env.key
          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.setting[env.value].secret_id
              version = "latest"
            }
          }
        }
      }
    }

    containers {
      name  = "proxy"
      image = local.proxy
      args  = concat(local.proxy_arguments, [local.connection_names[each.value.service]])

      resources {
        limits = { cpu = "0.25", memory = "128Mi" }
      }

      startup_probe {
        period_seconds    = 1
        failure_threshold = 60
        http_get {
          path = "/startup"
          port = 9090
        }
      }
    }

    # Sends the metrics of the process to Managed Prometheus.
    containers {
      name       = "collector"
      image      = var.collector
      depends_on = ["process"]

      resources {
        limits = { cpu = "0.1", memory = "256Mi" }
      }
    }
  }

  depends_on = [google_secret_manager_secret_iam_member.process, google_project_iam_member.database_client, google_project_iam_member.database_user]
}
