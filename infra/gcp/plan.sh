#!/bin/sh
# `make plan`: shows what Terraform would change in the project, or prints what is missing for that. Changes nothing.
set -eu
cd "$(dirname "$0")"
missing=""
command -v terraform >/dev/null || missing="$missing
  - terraform 1.11 or later: https://developer.hashicorp.com/terraform/install"
[ -n "${GOOGLE_APPLICATION_CREDENTIALS:-}" ] || [ -f "${CLOUDSDK_CONFIG:-$HOME/.config/gcloud}/application_default_credentials.json" ] ||
    missing="$missing
  - credentials: gcloud auth application-default login"
[ -f terraform.tfvars ] || missing="$missing
  - infra/gcp/terraform.tfvars, with your project: docs/deploy-gcp.md has an example"
[ -n "${STATE_BUCKET:-}" ] || missing="$missing
  - the bucket of Terraform's state: export STATE_BUCKET=…"
if [ -n "$missing" ]; then
    echo "error: Terraform cannot plan. Missing:$missing" >&2
    exit 1
fi
terraform init -input=false -backend-config="bucket=$STATE_BUCKET"
exec terraform plan -input=false "$@"
