/// Work on the content of a large request, before the request is finished. It runs on another thread, so that no content holds up the requests of others.
///
/// The server calls `prepare` at most once. What it has found is read in `finish`.
package protocol BodyPreparation: AnyObject, Sendable {
  func prepare(_ bytes: [UInt8])
}
