// Shows the contract. The validator is off: it is at another host.
SwaggerUIBundle({
  url: "openapi.yaml",
  dom_id: "#viewer",
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  validatorUrl: null,
  deepLinking: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
});
