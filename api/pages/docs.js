// Shows the contract. The validator is off: it is at another host. A token that is entered with
// Authorize stays in the memory of the page: it is not stored, and example calls do not show it.
function hideToken() {
  return {
    wrapComponents: {
      curl: (Original, { React }) => ({ request, ...others }) =>
        React.createElement(Original, {
          ...others,
          request: request.hasIn(["headers", "Authorization"]) ? request.setIn(["headers", "Authorization"], "Bearer TOKEN") : request,
        }),
    },
  };
}

SwaggerUIBundle({
  url: "openapi.yaml",
  dom_id: "#viewer",
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [hideToken],
  persistAuthorization: false,
  layout: "BaseLayout",
  validatorUrl: null,
  deepLinking: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
});
