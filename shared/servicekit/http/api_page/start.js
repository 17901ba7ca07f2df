const page = document.getElementById("page");
const ui = SwaggerUIBundle({
  domNode: page,
  url: "/schema/openapi.json",
  validatorUrl: null, // the default sends the document to another host
  deepLinking: true,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  onComplete: () => {
    if (page.dataset.token) ui.preauthorizeApiKey("bearer", page.dataset.token);
  },
});
