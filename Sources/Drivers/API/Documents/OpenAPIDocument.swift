/// The OpenAPI description of the API, as served: `openapi.yaml` in this directory.
package enum OpenAPIDocument {
  static let text: [UInt8] = PackageResources.openapi_yaml
}
