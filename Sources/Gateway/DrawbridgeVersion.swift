/// The version of this build.
package enum DrawbridgeVersion {
  package static let text = "0.1.0"
}
