# Topics and subscriptions of infra/topology.toml. `fern topology apply` makes the same; where Terraform is used, Terraform owns them.

locals {
  is_pushed     = anytrue([for one in var.topology.subscriptions : one.push])
  push_audience = "fern-push"

  consumed = { for name, one in var.topology.subscriptions : name => one if one.dead_letter_topic != null }

  # Who may publish what: a relay the events of its service, a consumer the dead letters of what it consumes.
  relays    = { for topic in var.topology.topics : topic => startswith(topic, "notification.") ? "notification-relay" : "labour-relay" if !endswith(topic, ".dlq") }
  consumers = { labour = "labour-consumer", statistics = "labour-statistics", notification = "notification-consumer" }

  # With push, the API handles the messages; the drain is a consumer as well.
  handlers = merge(
    { for name, one in local.consumed : "${name} ${local.consumers[one.consumer]}" => { subscription = name, dead = one.dead_letter_topic, process = local.consumers[one.consumer] } },
    { for name, one in local.consumed : "${name} notification-drain" => { subscription = name, dead = one.dead_letter_topic, process = "notification-drain" } if one.consumer == "notification" },
    { for name, one in local.consumed : "${name} notification-api" => { subscription = name, dead = one.dead_letter_topic, process = "notification-api" } if one.push },
  )
}

resource "google_pubsub_topic" "events" {
  for_each = toset(var.topology.topics)

  name = each.key

  message_storage_policy {
    allowed_persistence_regions = [var.region] # personal data stays where the databases are
  }

  depends_on = [google_project_service.used]
}

resource "google_pubsub_subscription" "events" {
  for_each = var.topology.subscriptions

  name                         = each.key
  topic                        = google_pubsub_topic.events[each.value.topic].id
  ack_deadline_seconds         = var.topology.ack_deadline_seconds
  message_retention_duration   = each.value.retention
  enable_exactly_once_delivery = each.value.exactly_once

  expiration_policy {
    ttl = "" # an idle subscription is never deleted
  }

  dynamic "retry_policy" {
    for_each = each.value.dead_letter_topic == null ? [] : [1]
    content {
      minimum_backoff = var.topology.minimum_backoff
      maximum_backoff = var.topology.maximum_backoff
    }
  }

  dynamic "dead_letter_policy" {
    for_each = each.value.dead_letter_topic == null ? [] : [each.value.dead_letter_topic]
    content {
      dead_letter_topic     = google_pubsub_topic.events[dead_letter_policy.value].id
      max_delivery_attempts = var.topology.max_delivery_attempts
    }
  }

  dynamic "push_config" {
    for_each = each.value.push ? [1] : []
    content {
      push_endpoint = "${local.urls["notification-api"]}/pubsub/push"
      oidc_token {
        service_account_email = google_service_account.push.email
        audience              = local.push_audience
      }
    }
  }
}

# Pub/Sub moves a message to its dead-letter topic as its own agent. Without both roles it silently keeps redelivering. Google
# makes the agent with the first topic; its name follows from the number of the project.

locals {
  pubsub_agent = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-pubsub.iam.gserviceaccount.com"
}

resource "google_pubsub_topic_iam_member" "dead_letters" {
  for_each = toset([for one in local.consumed : one.dead_letter_topic])

  topic  = google_pubsub_topic.events[each.key].name
  role   = "roles/pubsub.publisher"
  member = local.pubsub_agent
}

resource "google_pubsub_subscription_iam_member" "dead_letters" {
  for_each = local.consumed

  subscription = google_pubsub_subscription.events[each.key].name
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}

# The account whose token the bus sends with a pushed message. The push endpoint accepts no other.

resource "google_service_account" "push" {
  account_id   = "fern-push"
  display_name = "Pub/Sub push to notification-api"

  depends_on = [google_project_service.used]
}

resource "google_service_account_iam_member" "push" {
  service_account_id = google_service_account.push.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = local.pubsub_agent

  depends_on = [google_pubsub_topic.events]
}

resource "google_pubsub_topic_iam_member" "relay" {
  for_each = local.relays

  topic  = google_pubsub_topic.events[each.key].name
  role   = "roles/pubsub.publisher"
  member = google_service_account.process[each.value].member
}

resource "google_pubsub_subscription_iam_member" "consumer" {
  for_each = local.handlers

  subscription = google_pubsub_subscription.events[each.value.subscription].name
  role         = "roles/pubsub.subscriber"
  member       = google_service_account.process[each.value.process].member
}

resource "google_pubsub_topic_iam_member" "consumer" {
  for_each = { for pair in distinct([for one in local.handlers : { dead = one.dead, process = one.process }]) : "${pair.dead} ${pair.process}" => pair }

  topic  = google_pubsub_topic.events[each.value.dead].name
  role   = "roles/pubsub.publisher"
  member = google_service_account.process[each.value.process].member
}

resource "google_pubsub_subscription_iam_member" "audit" {
  for_each = toset([for name, one in var.topology.subscriptions : name if one.dead_letter_topic == null])

  subscription = google_pubsub_subscription.events[each.key].name
  role         = "roles/pubsub.subscriber"
  member       = google_service_account.audit.member
}
