/// The work on the content of a large request that can be done before the request is finished. It runs on another
/// thread, so that large contents do not delay the requests of other clients.
///
/// The server calls `prepare` at most once. `finish` reads the results.
package protocol BodyPreparation: AnyObject, Sendable {
  func prepare(_ bytes: [UInt8])
}
