output "urls" {
  description = "The addresses of the APIs."
  value       = local.urls
}

output "registry" {
  description = "Where the images are pushed to."
  value       = local.registry
}

output "databases" {
  description = "The connection name and the private address of each database."
  value       = { for name, one in google_sql_database_instance.service : name => { connection = one.connection_name, address = one.private_ip_address } }
}

output "secrets" {
  description = "The secrets that need a value before the stage `jobs`."
  value       = keys(google_secret_manager_secret.setting)
}
