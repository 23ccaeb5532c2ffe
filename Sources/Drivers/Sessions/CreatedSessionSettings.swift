import ByteStreams

/// The limits of sessions that clients create.
package struct CreatedSessionSettings: Equatable, Sendable {
  package var total = 10_000
  package var perOwner = 100
  package var idleAfter = TimeSpan.minutes(10)

  package init() {}
}
