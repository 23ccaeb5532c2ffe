/// The version of this build.
package enum DrawbridgeVersion {
  package static let text = "0.2.0"
}
