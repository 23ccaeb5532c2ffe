import ByteStreams
import Dialing
import Host
import Reactor
import WebSocketCodec

/// Reads the URL of one connection from the file or command of `upstream.url`.
final class URLReading: LoopTask {
  enum Event {
    /// The URL, and how long its reading took.
    case read(WebSocketURL, after: TimeSpan)
    case failed(AttemptReport)
  }

  private let source: URLSource
  private let settings: PreparedSettings
  private let loop: LoopContext
  private let cancellation = Cancellation()
  private let report: (Event) -> Void

  /// - Parameter report: receives one event, unless the reading is cancelled.
  init(_ settings: PreparedSettings, loop: LoopContext, report: @escaping (Event) -> Void) {
    source = settings.value.urlSource
    self.settings = settings
    self.loop = loop
    self.report = report
  }

  func cancel() { cancellation.cancel() }

  func run() async {
    let start = loop.now
    let result = await read()
    guard !cancellation.isCancelled else { return }
    switch result {
    case .success(let url): report(.read(url, after: loop.now - start))
    case .failure(.cancelled), .failure(.redirected): break
    case .failure(.failed(let failure)): report(.failed(failure))
    }
  }

  private func read() async -> Result<WebSocketURL, AttemptError> {
    let reader = AttemptReader(cancellation: cancellation, loop: loop)
    let content: [UInt8]
    if source.command.isEmpty {
      let deadline = loop.now + settings.value.fileTimeout
      guard let outcome = await reader.file(source.file, atMost: URLSource.maximumBytes, until: deadline) else {
        return .failure(.cancelled)
      }
      do throws(RequiredFileError) {
        content = try RequiredFile.content(outcome)
      } catch {
        return .failure(.preparationFailed("\(source.name) cannot be read: \(error)"))
      }
    } else {
      guard
        let outcome = await reader.output(
          of: source.command, atMost: URLSource.maximumBytes, within: source.timeout)
      else { return .failure(.cancelled) }
      let name = "the command '\(source.command[0])' of 'upstream.url.command'"
      switch outcome {
      case .success(.success(let bytes)): content = bytes
      case .success(.failure(let error)): return .failure(.preparationFailed("\(name) \(error)"))
      case .failure(let error): return .failure(.preparationFailed("\(name) is \(error)"))
      }
    }
    do throws(URLSourceError) {
      return .success(try source.url(in: content))
    } catch {
      return .failure(.preparationFailed("\(source.name) \(error)"))
    }
  }
}
