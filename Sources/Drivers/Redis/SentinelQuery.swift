import ByteStreams
import Dialing
import Reactor
import RedisProtocol

/// Queries one Sentinel for the address of a primary.
final class SentinelQuery: RedisConnectionOwner {
  typealias Completion = (Result<RedisAddress, RedisFailure>) -> Void

  /// The timeout of the connection, and also of the reply. It is short, since a Sentinel replies within milliseconds,
  /// and other Sentinels can be queried.
  private static var timeout: TimeSpan { .seconds(1) }

  private let name: String
  private var connection: RedisConnection?
  private var completion: Completion?

  /// `name`: the name of the primary. `completion` is called once, unless the query is cancelled.
  init(_ name: String, completion: @escaping Completion) {
    self.name = name
    self.completion = completion
  }

  func start(at sentinel: RedisEndpoint, dialer: any Dialer, loop: LoopContext) {
    var settings = RedisConnectionSettings()
    settings.peer = .sentinel
    settings.startTimeout = Self.timeout
    settings.commandTimeout = Self.timeout
    let connection = RedisConnection(to: sentinel, settings, dialer: dialer, loop: loop, owner: self)
    self.connection = connection
    connection.start()
  }

  func cancel() {
    completion = nil
    finish(.failure(.closed))
  }

  private func finish(_ result: Result<RedisAddress, RedisFailure>) {
    let completion = self.completion
    self.completion = nil
    let connection = self.connection
    self.connection = nil
    connection?.close()
    completion?(result)
  }

  func connection(_ connection: RedisConnection, reports event: RedisConnection.Event) {
    switch event {
    case .ready:
      _ = connection.send(SentinelAnswer.request(for: name)) { [self] outcome in
        finish(result(of: outcome))
      }
    case .subscription: break
    case .ended(let failure): finish(.failure(failure))
    }
  }

  private func result(of outcome: RedisOutcome) -> Result<RedisAddress, RedisFailure> {
    switch outcome {
    case .refused(let error): return .failure(.refused(error))
    case .lost(let failure): return .failure(failure)
    case .reply(let reply):
      do throws(RedisFailure) {
        return .success(try SentinelAnswer.address(in: reply, of: name))
      } catch {
        return .failure(error)
      }
    }
  }
}
