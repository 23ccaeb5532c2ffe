/// The contract of the HTTP interface, `openapi.yaml` beside this target's sources, as it is served.
package enum OpenAPIDocument {
  static let text: [UInt8] = PackageResources.openapi_yaml
}
